package conformance

import (
	"strings"
	"testing"
)

var nameCases = []testCase{
	{fact: "ContainerNameRules", check: containerNames},
	{fact: "QueueNameRules", check: queueNames},
	{fact: "BlobNamesSurviveAsWritten", check: blobNames},
	{fact: "BlobNamesThatWouldChangeAreRefused", check: blobNamesRefused},
}

// badNames cannot name a queue or a container.
var badNames = map[string]string{
	"ab":                    "OutOfRangeInput",
	strings.Repeat("a", 64): "OutOfRangeInput",
	"Upper":                 "InvalidResourceName",
	"double--hyphen":        "InvalidResourceName",
	"hyphen-":               "InvalidResourceName",
	"under_score":           "InvalidResourceName",
}

func containerNames(t *testing.T, e *env) {
	for name, code := range badNames {
		_, err := e.blobs.CreateContainer(t.Context(), name, nil)
		wantRefused(t, err, 400, code, "CreateContainer "+name)
	}
}

func queueNames(t *testing.T, e *env) {
	for name, code := range badNames {
		_, err := e.queues.CreateQueue(t.Context(), name, nil)
		wantRefused(t, err, 400, code, "CreateQueue "+name)
	}
}

func blobNames(t *testing.T, e *env) {
	c := e.container(t)
	for _, name := range []string{
		"plain", "with/slash", "with space", "percent%20", "plus+plus", "question?mark", "hash#mark", "a&b=c",
		"zażółć", "tilde~", "dot.in.the.middle", ".leading", "colon:", "Case", "case", "UTC-2026-11-21T10:00:00Z",
	} {
		must(c.NewBlockBlobClient(name).Upload(t.Context(), body(name), nil))(t, "Upload of "+name)
		if got := download(t, c.NewBlockBlobClient(name)); got != name {
			t.Errorf("blob %q = %q, want its name", name, got)
		}
		names, _ := listAll(t, c, nil)
		if len(names) != 1 || names[0] != name {
			t.Errorf("listed %q, want %q", names, name)
		}
		must(c.NewBlobClient(name).Delete(t.Context(), nil))(t, "Delete of "+name)
	}
}

func blobNamesRefused(t *testing.T, e *env) {
	c := e.container(t)
	for _, name := range []string{`back\slash`, "a/../b", "./a", "trailing."} {
		_, err := c.NewBlockBlobClient(name).Upload(t.Context(), body("text"), nil)
		e.wantStrict(t, NamesAsWritten, err, 400, "InvalidResourceName", "Upload of "+name)
	}
	_, err := c.NewBlockBlobClient(strings.Repeat("x", 1025)).Upload(t.Context(), body("text"), nil)
	e.wantStrict(t, BlobNameLength, err, 400, "", "Upload of a name with 1,025 characters")
}
