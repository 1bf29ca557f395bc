//go:build unix && !linux

package resource

// Space is unknown here.
func Space(string) (free, size int64) { return 0, 0 }

// OOMKills is unknown here.
func OOMKills() (kills int64, ok bool) { return 0, false }

// groupKills is unknown here.
func groupKills() (kills int64, ok bool) { return 0, false }
