package conformance

import (
	"bytes"
	"crypto/md5"
	"fmt"
	"io"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/blob"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/blockblob"
)

var readCases = []testCase{
	{fact: "BlobRoundTrip", check: blobRoundTrip},
	{fact: "MissingBlobIs404", check: missingBlob},
	{fact: "HeadOfAMissingBlobNamesTheCode", check: headMissingBlob},
	{fact: "DeletedBlobIs404", check: deletedBlob},
	{fact: "PropertiesDescribeTheBlob", check: propertiesDescribe},
	{fact: "LastModifiedAndDateAreWholeSecondsOfOneClock", check: lastModified},
	{fact: "WrongMD5IsRefused", check: wrongMD5},
}

var rangeCases = []testCase{
	{fact: "RangeIsServedAs206", check: rangeServed},
	{fact: "RangeIsCutToTheBlob", check: rangeCut},
	{fact: "RangePastTheEndIs416", check: rangePastEnd},
	{fact: "RangeAcrossBlocks", check: rangeAcrossBlocks},
}

func blobRoundTrip(t *testing.T, e *env) {
	b := e.blob(t)
	for _, text := range []string{"", "text", "zażółć", "\x00\x01\xff"} {
		upload(t, b, text)
		if got := download(t, b); got != text {
			t.Errorf("blob = %q, want %q", got, text)
		}
	}
}

func missingBlob(t *testing.T, e *env) {
	b := e.blob(t)
	_, err := b.DownloadStream(t.Context(), nil)
	wantRefused(t, err, 404, "BlobNotFound", "DownloadStream")
	_, err = b.SetMetadata(t.Context(), nil, nil)
	wantRefused(t, err, 404, "BlobNotFound", "SetMetadata")
	_, err = b.Delete(t.Context(), nil)
	wantRefused(t, err, 404, "BlobNotFound", "Delete")
	_, err = b.GetBlockList(t.Context(), blockblob.BlockListTypeAll, nil)
	wantRefused(t, err, 404, "BlobNotFound", "GetBlockList")
}

func headMissingBlob(t *testing.T, e *env) {
	_, err := e.blob(t).GetProperties(t.Context(), nil)
	wantRefused(t, err, 404, "BlobNotFound", "GetProperties")
}

func deletedBlob(t *testing.T, e *env) {
	b := e.blob(t)
	upload(t, b, "text")
	must(b.Delete(t.Context(), nil))(t, "Delete")
	_, err := b.GetProperties(t.Context(), nil)
	wantRefused(t, err, 404, "BlobNotFound", "GetProperties after Delete")
	_, err = b.Delete(t.Context(), nil)
	wantRefused(t, err, 404, "BlobNotFound", "Delete again")
}

func propertiesDescribe(t *testing.T, e *env) {
	b := e.blob(t)
	must(b.Upload(t.Context(), body("text"), &blockblob.UploadOptions{
		HTTPHeaders: &blob.HTTPHeaders{BlobContentType: new("application/json"), BlobCacheControl: new("no-store")},
	}))(t, "Upload")
	props := must(b.GetProperties(t.Context(), nil))(t, "GetProperties")
	sum := md5.Sum([]byte("text"))
	switch {
	case *props.ContentLength != 4:
		t.Errorf("length = %d, want 4", *props.ContentLength)
	case *props.ContentType != "application/json":
		t.Errorf("content type = %q, want application/json", *props.ContentType)
	case *props.CacheControl != "no-store":
		t.Errorf("cache control = %q, want no-store", *props.CacheControl)
	case *props.BlobType != blob.BlobTypeBlockBlob:
		t.Errorf("blob type = %q, want BlockBlob", *props.BlobType)
	case !bytes.Equal(props.ContentMD5, sum[:]):
		t.Errorf("MD5 = %x, want %x", props.ContentMD5, sum)
	}
}

func lastModified(t *testing.T, e *env) {
	b := e.blob(t)
	res := must(b.Upload(t.Context(), body("text"), nil))(t, "Upload")
	props := must(b.GetProperties(t.Context(), nil))(t, "GetProperties")
	if !props.LastModified.Equal(*res.LastModified) {
		t.Errorf("Last-Modified on read = %s, want that of the write, %s", props.LastModified, res.LastModified)
	}
	if age := props.Date.Sub(*props.LastModified); age < 0 || age > 10*time.Second {
		t.Errorf("Date less Last-Modified = %s, want the seconds since the write", age)
	}
}

func wrongMD5(t *testing.T, e *env) {
	b := e.blob(t)
	sum := md5.Sum([]byte("other"))
	_, err := b.Upload(t.Context(), body("text"), &blockblob.UploadOptions{
		TransactionalValidation: blob.TransferValidationTypeMD5(sum[:]),
	})
	wantRefused(t, err, 400, "Md5Mismatch", "Upload with the MD5 of another body")
	_, err = b.GetProperties(t.Context(), nil)
	wantRefused(t, err, 404, "BlobNotFound", "GetProperties after it")
}

// readRange reads some bytes and returns them with the Content-Range header.
func readRange(t *testing.T, b *blockblob.Client, offset, count int64) (data, contentRange string) {
	t.Helper()
	ctx, reply := withReply(t.Context())
	res := must(b.DownloadStream(ctx, &blob.DownloadStreamOptions{Range: blob.HTTPRange{Offset: offset, Count: count}}))(t, "DownloadStream")
	defer func() { _ = res.Body.Close() }()
	if got := reply().status; got != 206 {
		t.Errorf("status of a ranged read = %d, want 206", got)
	}
	all := must(io.ReadAll(res.Body))(t, "read body")
	if *res.ContentLength != int64(len(all)) {
		t.Errorf("Content-Length = %d, want the %d bytes sent", *res.ContentLength, len(all))
	}
	return string(all), *res.ContentRange
}

func rangeServed(t *testing.T, e *env) {
	b := e.blob(t)
	upload(t, b, "0123456789")
	data, header := readRange(t, b, 2, 3)
	if data != "234" || header != "bytes 2-4/10" {
		t.Errorf("range = %q with %q, want %q with %q", data, header, "234", "bytes 2-4/10")
	}
}

func rangeCut(t *testing.T, e *env) {
	b := e.blob(t)
	upload(t, b, "0123456789")
	data, header := readRange(t, b, 7, 100)
	if data != "789" || header != "bytes 7-9/10" {
		t.Errorf("range = %q with %q, want %q with %q", data, header, "789", "bytes 7-9/10")
	}
	if data, _ := readRange(t, b, 8, 0); data != "89" { // the SDK's 0 is "to the end"
		t.Errorf("open range = %q, want %q", data, "89")
	}
}

func rangePastEnd(t *testing.T, e *env) {
	b := e.blob(t)
	upload(t, b, "0123456789")
	_, err := b.DownloadStream(t.Context(), &blob.DownloadStreamOptions{Range: blob.HTTPRange{Offset: 11, Count: 1}})
	wantRefused(t, err, 416, "InvalidRange", "DownloadStream past the end")
	_, err = b.DownloadStream(t.Context(), &blob.DownloadStreamOptions{Range: blob.HTTPRange{Offset: 10, Count: 1}})
	e.wantStrict(t, rangeAtTheEnd, err, 416, "InvalidRange", "DownloadStream from the end on")
}

func rangeAcrossBlocks(t *testing.T, e *env) {
	b := e.blob(t)
	var ids []string
	for i, text := range []string{"012", "", "34567", "89"} {
		ids = append(ids, blockID(fmt.Sprintf("b%d", i)))
		stage(t, b, ids[i], text)
	}
	must(b.CommitBlockList(t.Context(), ids, nil))(t, "CommitBlockList")
	for offset := range int64(10) {
		for count := int64(1); count <= 10-offset; count++ {
			want := "0123456789"[offset : offset+count]
			if got, _ := readRange(t, b, offset, count); got != want {
				t.Errorf("range from %d of %d = %q, want %q", offset, count, got, want)
			}
		}
	}
}
