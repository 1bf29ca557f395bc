package protocol

import (
	"crypto/md5" //nolint:gosec // the protocol's checksum, not a protection
	"encoding/base64"
	"encoding/binary"
	"hash/crc64"
)

// crcTable is for the CRC-64 that the service uses.
var crcTable = crc64.MakeTable(0x9A6C9329AC4BC9B5)

// VerifyBody compares the body with the hashes that the request states: the
// first MD5 header of those named, and x-ms-content-crc64. It returns the
// body's MD5 in base64.
func VerifyBody(r *Request, md5Headers ...string) (string, error) {
	if want := r.Header.Get("x-ms-content-crc64"); want != "" && want != CRC64(r.Data) {
		return "", errCRC64Mismatch
	}
	got := MD5(r.Data)
	for _, name := range md5Headers {
		want := r.Header.Get(name)
		if want == "" {
			continue
		}
		if raw, err := base64.StdEncoding.DecodeString(want); err != nil || len(raw) != md5.Size {
			return "", errInvalidMD5.Because("%s %q", name, want)
		}
		if want != got {
			return "", errMD5Mismatch
		}
		break
	}
	return got, nil
}

// MD5 returns the MD5 as headers carry it.
func MD5(data []byte) string {
	sum := md5.Sum(data) //nolint:gosec // see the import
	return base64.StdEncoding.EncodeToString(sum[:])
}

// CRC64 returns the CRC-64 as headers carry it: little endian.
func CRC64(data []byte) string {
	var b [8]byte
	binary.LittleEndian.PutUint64(b[:], crc64.Checksum(data, crcTable))
	return base64.StdEncoding.EncodeToString(b[:])
}
