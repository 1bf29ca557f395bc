package conformance

import (
	"maps"
	"strings"
	"testing"

	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/blockblob"
)

var metadataCases = []testCase{
	{fact: "MetadataRoundTripWithoutCase", check: metadataRoundTrip},
	{fact: "SetMetadataReplacesAll", check: metadataReplaces},
	{fact: "UploadReplacesMetadata", check: uploadReplacesMetadata},
	{fact: "MetadataValueMayBeAnyPrintableASCII", check: metadataPrintable},
	{fact: "MetadataNameMustBeAnIdentifier", check: metadataNames},
	{fact: "MetadataValueMustBePrintableASCII", check: metadataValues},
	{fact: "MetadataValueMustNotBeEmpty", check: metadataEmpty},
	{fact: "MetadataOverEightKiBIsRefused", check: metadataSize},
}

// wantMetadata compares without the case of names: HTTP libraries change it.
func wantMetadata(t *testing.T, got map[string]*string, want map[string]string) {
	t.Helper()
	plain := make(map[string]string)
	for name, value := range got {
		plain[strings.ToLower(name)] = *value
	}
	if !maps.Equal(plain, want) {
		t.Errorf("metadata = %q, want %q", plain, want)
	}
}

func metadataRoundTrip(t *testing.T, e *env) {
	b := e.blob(t)
	upload(t, b, "text")
	must(b.SetMetadata(t.Context(), map[string]*string{
		"lower": new("Value"), "camelCase": new("2"), "under_score": new("3"), "_x9": new("4"), "a1": new("5"), "a_b": new("6"),
	}, nil))(t, "SetMetadata")
	props := must(b.GetProperties(t.Context(), nil))(t, "GetProperties")
	wantMetadata(t, props.Metadata, map[string]string{
		"lower": "Value", "camelcase": "2", "under_score": "3", "_x9": "4", "a1": "5", "a_b": "6",
	})
	if got := download(t, b); got != "text" {
		t.Errorf("blob after SetMetadata = %q, want it unchanged", got)
	}
}

func metadataReplaces(t *testing.T, e *env) {
	b := e.blob(t)
	upload(t, b, "text")
	must(b.SetMetadata(t.Context(), map[string]*string{"a": new("1"), "b": new("2")}, nil))(t, "SetMetadata")
	must(b.SetMetadata(t.Context(), map[string]*string{"b": new("3")}, nil))(t, "SetMetadata")
	props := must(b.GetProperties(t.Context(), nil))(t, "GetProperties")
	wantMetadata(t, props.Metadata, map[string]string{"b": "3"})
}

func uploadReplacesMetadata(t *testing.T, e *env) {
	b := e.blob(t)
	must(b.Upload(t.Context(), body("text"), &blockblob.UploadOptions{Metadata: map[string]*string{"a": new("1")}}))(t, "Upload")
	upload(t, b, "text")
	props := must(b.GetProperties(t.Context(), nil))(t, "GetProperties")
	wantMetadata(t, props.Metadata, nil)
}

func metadataPrintable(t *testing.T, e *env) {
	var all strings.Builder
	for c := '!'; c <= '~'; c++ {
		all.WriteRune(c)
	}
	all.WriteString(" and a space within")
	b := e.blob(t)
	upload(t, b, "text")
	must(b.SetMetadata(t.Context(), map[string]*string{"all": new(all.String())}, nil))(t, "SetMetadata")
	props := must(b.GetProperties(t.Context(), nil))(t, "GetProperties")
	wantMetadata(t, props.Metadata, map[string]string{"all": all.String()})
}

// setMetadata sets one name and value on a new blob.
func (e *env) setMetadata(t *testing.T, name, value string) error {
	t.Helper()
	b := e.blob(t)
	upload(t, b, "text")
	_, err := b.SetMetadata(t.Context(), map[string]*string{name: &value}, nil)
	return err
}

func metadataNames(t *testing.T, e *env) {
	for _, name := range []string{"with-hyphen", "1st"} {
		wantRefused(t, e.setMetadata(t, name, "1"), 400, "InvalidMetadata", "SetMetadata with the name "+name)
	}
}

func metadataValues(t *testing.T, e *env) {
	// A service that reads the header in another encoding than it was signed
	// in finds the signature wrong before it looks at the value.
	err := e.setMetadata(t, "name", "caf\u00e9")
	if status, code := refusal(err); code != "InvalidMetadata" && status != 403 {
		t.Errorf("SetMetadata with an accent = %d %s, want 400 InvalidMetadata or 403", status, code)
	}
	if err := e.setMetadata(t, "name", "two\nlines"); err == nil {
		t.Errorf("SetMetadata with a newline succeeded, want a refusal")
	}
}

func metadataEmpty(t *testing.T, e *env) {
	e.wantStrict(t, metadataEmptyValues, e.setMetadata(t, "name", ""), 400, "InvalidMetadata", "SetMetadata with an empty value")
}

func metadataSize(t *testing.T, e *env) {
	if err := e.setMetadata(t, "name", strings.Repeat("x", 8<<10-len("name"))); err != nil {
		t.Errorf("SetMetadata of 8 KiB = %v, want success", err)
	}
	e.wantStrict(t, metadataUnlimited, e.setMetadata(t, "name", strings.Repeat("x", 8<<10)), 400, "MetadataTooLarge", "SetMetadata over 8 KiB")
}
