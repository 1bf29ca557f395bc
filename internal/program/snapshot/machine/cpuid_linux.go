//go:build !amd64

package machine

// setFeatures does nothing: processors of this architecture must be the same.
func (*Facts) setFeatures() {}
