package blobs

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/spotworker/spotworker/internal/lab/emulator/storage/protocol"
)

// BenchmarkList5000 is one page of records with metadata.
func BenchmarkList5000(b *testing.B) {
	s := New()
	c := &container{blobs: make(map[string]*blob)}
	s.containers["records"] = c
	metadata := map[string]string{}
	for i := range 15 {
		metadata[fmt.Sprintf("name%d", i)] = strings.Repeat("v", 20)
	}
	for i := range 5000 {
		c.change(fmt.Sprintf("jobs/%05d", i)).current = &version{etag: s.newETag(), metadata: metadata}
	}
	r, err := protocol.NewRequest(protocol.BlobService, httptest.NewRequest(http.MethodGet,
		"http://blob.emulator/acc/records?restype=container&comp=list&include=metadata", http.NoBody))
	if err != nil {
		b.Fatal(err)
	}
	for b.Loop() {
		if _, err := s.listBlobs(r); err != nil {
			b.Fatal(err)
		}
	}
}
