//go:build !amd64

package snapshot

// setFeatures does nothing: processors of this architecture must be the same.
func (*Machine) setFeatures() {}
