package protocol

import (
	"encoding/base64"
	"fmt"
	"testing"
)

// The service's CRC-64 is the one catalogued as CRC-64/NVME, whose check value
// for the digits 1 to 9 is AE8B14860A799888; headers carry it little endian.
func TestCRC64(t *testing.T) {
	raw, err := base64.StdEncoding.DecodeString(CRC64([]byte("123456789")))
	if err != nil {
		t.Fatalf("crc64Of: %v", err)
	}
	if got, want := fmt.Sprintf("%x", raw), "8898790a86148bae"; got != want {
		t.Errorf("CRC-64 = %s, want %s", got, want)
	}
}
