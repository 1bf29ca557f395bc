package handlers

// DigestPayload names the blob to hash. Unknown fields are ignored.
type DigestPayload struct {
	// Container must be one that the worker was allowed to read.
	Container string `json:"container"`

	// Blob is the blob's name as a listing shows it: not a URL, not escaped.
	Blob string `json:"blob"`

	// Version is the id of one version of the blob, on accounts that keep
	// versions. Empty means the version that is current when the job starts.
	Version string `json:"version,omitempty"`
}

// parseDigestPayload returns an error that names the field that is wrong.
func parseDigestPayload(raw []byte) (DigestPayload, error) {
	var p DigestPayload
	if err := decodePayload(raw, &p, `{"container":"data","blob":"2026/a.tar"}`); err != nil {
		return DigestPayload{}, err
	}
	return p, firstWrong(sourceFields(p.Container, p.Blob, p.Version))
}
