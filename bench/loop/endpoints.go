package loop

import "strings"

// Endpoints are the addresses and the key in a connection string.
type Endpoints struct {
	Account, Key, Blob, Queue string
}

// ParseEndpoints returns the parts of a connection string.
func ParseEndpoints(connectionString string) Endpoints {
	values := map[string]string{}
	for part := range strings.SplitSeq(connectionString, ";") {
		key, value, _ := strings.Cut(part, "=")
		values[key] = value
	}
	return Endpoints{values["AccountName"], values["AccountKey"], values["BlobEndpoint"], values["QueueEndpoint"]}
}
