package handlers

import (
	"errors"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/spotworker/spotworker/internal/lab/emulator/storage"
	"github.com/spotworker/spotworker/job"
)

func TestDigestPayloads(t *testing.T) {
	b := setup(t)
	b.put(t, "blob", nil)
	for payload, want := range map[string]string{
		``:                                       `it must be a JSON object such as {"container":"data","blob":"2026/a.tar"}`,
		`blob`:                                   `it must be a JSON object such as {"container":"data","blob":"2026/a.tar"}`,
		`["data","blob"]`:                        `it must be a JSON object such as {"container":"data","blob":"2026/a.tar"}`,
		`null`:                                   "field container is missing or empty",
		`{}`:                                     "field container is missing or empty",
		`{"blob":"blob"}`:                        "field container is missing or empty",
		`{"container":"data"}`:                   "field blob is missing or empty",
		`{"container":"data","blob":""}`:         "field blob is missing or empty",
		`{"container":7,"blob":"blob"}`:          "field container is a JSON number; it must be a string",
		`{"container":"data","blob":{"a":1}}`:    "field blob is a JSON object; it must be a string",
		`{"container":"https://x/c","blob":"b"}`: "field container is a URL; it must be a container's name",
		`{"container":"data","blob":"http://x/"}`: "field blob is a URL; it must be the blob's name in " +
			"its container",
		`{"container":"data","blob":"../x/y"}`: "field blob has a part that ends with a dot, which no blob's " +
			"name can have",
		`{"container":"data","blob":"a/./b"}`: "field blob has a part that ends with a dot, which no blob's " +
			"name can have",
		`{"container":"data","blob":"a\\b"}`: "field blob has a backslash or a control character, which no " +
			"blob's name can have",
		`{"container":"data","blob":"a\nb"}`: "field blob has a backslash or a control character, which no " +
			"blob's name can have",
		`{"container":"data","blob":"b","version":"a&comp=list"}`: "field version is not a version's id such as " +
			"2026-01-31T09:30:00.1234567Z",
		`{"container":"data","blob":"` + strings.Repeat("é", 1025) + `"}`: "field blob has 1025 characters; a blob's name has at most 1024",
		`{"container":"secret","blob":"blob"}`: `container "secret" is not one that this worker may read; ` +
			`--data-container allows it`,
		`{"container":"` + strings.Repeat("x", 200) + `","blob":"blob"}`: `container "` + strings.Repeat("x", 80) +
			`" is not one that this worker may read; --data-container allows it`,
		`{"container":"data","blob":"blob"}{"container":"data","blob":"other"}`: `it must be a JSON object such as ` +
			`{"container":"data","blob":"2026/a.tar"}`,
	} {
		_, err := b.digest.Run(t.Context(), job.New(job.Spec{ID: "job", Payload: []byte(payload)}, nil))
		if err == nil || err.Error() != "payload of a digest job: "+want || !job.IsPermanent(err) {
			t.Errorf("payload %s\n got %v (permanent %t)\nwant payload of a digest job: %s", payload, err, job.IsPermanent(err), want)
		}
	}
	if counts := b.server.Counts(); counts[storage.OpGetBlobProperties] != 0 {
		t.Errorf("%d blobs were looked at, want none", counts[storage.OpGetBlobProperties])
	}
}

func TestDigestStates(t *testing.T) {
	b := setup(t)
	data := content(2*rangeSize + 1)
	b.put(t, "blob", data)
	j := digestJob("blob", nil)
	if _, err := b.digest.Run(b.stopAfter(t, 1), j); err == nil {
		t.Fatal("stopped run = nil, want an error")
	}
	good := string(job.ControlOf(j).Latest().State)
	b.server.OnCall(nil)
	for _, c := range []struct {
		state string
		want  string
	}{
		{"", "it cannot be read: "},
		{"garbage", "it cannot be read: "},
		{"{}", "it cannot be right: "},
		{strings.Replace(good, `"offset":`, `"offset":-`, 1), "it cannot be right: "},
		{strings.Replace(good, `"offset":`, `"offset":9`, 1), "it cannot be right: "},
		{strings.Replace(good, `"hash":"`, `"hash":"AAAA`, 1), "it cannot be read: "},
	} {
		_, err := b.digest.Run(t.Context(), digestJob("blob", &job.Progress{State: []byte(c.state), Version: 1}))
		if err == nil || !strings.HasPrefix(err.Error(), "recorded state of a digest job: "+c.want) || !job.IsPermanent(err) {
			t.Errorf("state %q = %v, want a permanent error: %s", c.state, err, c.want)
		}
	}
	var unknown *job.VersionError
	for _, version := range []int{0, 2} {
		_, err := b.digest.Run(t.Context(), digestJob("blob", &job.Progress{State: []byte(good), Version: version}))
		if !errors.As(err, &unknown) || unknown.Version != version || job.IsPermanent(err) {
			t.Errorf("state of version %d = %v, want an error that names the version, which another worker may know", version, err)
		}
	}
	if result, err := b.digest.Run(t.Context(), digestJob("blob", &job.Progress{State: []byte(good), Version: 1})); err != nil {
		t.Errorf("the state that was reported: %v", err)
	} else {
		wantDigest(t, result, data)
	}
}

func TestDigestOfABlobDeletedDuringTheRun(t *testing.T) {
	b := setup(t)
	b.put(t, "blob", content(2*rangeSize))
	reads := 0
	b.server.OnCall(func(c storage.Call) storage.Fault {
		if c.Operation == storage.OpGetBlob {
			if reads++; reads == 2 {
				if _, err := b.account.Container("data").NewBlobClient("blob").Delete(t.Context(), nil); err != nil {
					t.Error(err)
				}
			}
		}
		return storage.Fault{}
	})
	_, err := b.digest.Run(t.Context(), digestJob("blob", nil))
	if err == nil || !job.IsPermanent(err) || !strings.Contains(err.Error(), "does not exist") {
		t.Errorf("digest = %v, want the permanent error that the blob does not exist", err)
	}
}

// TestDigestRefusals checks the reason that people read: one line, and what to do.
func TestDigestRefusals(t *testing.T) {
	for _, c := range []struct {
		refusal   storage.Error
		want      string
		permanent bool
	}{
		{storage.Error{Status: http.StatusForbidden, Code: "AuthorizationPermissionMismatch"},
			`read blob "blob" in container data: access denied (403 AuthorizationPermissionMismatch): ` +
				`the identity that the worker signs in with needs ` +
				`the role Storage Blob Data Reader on that container`, false},
		{storage.Error{Status: http.StatusConflict, Code: "BlobArchived"},
			`blob "blob" in container data is in the archive tier: rehydrate it and replay the job`, true},
		{storage.Error{Status: http.StatusServiceUnavailable, Code: "ServerBusy"},
			`read blob "blob" in container data: the storage service answered 503 ServerBusy`, false},
		{storage.Error{Status: http.StatusBadRequest, Code: "InvalidHeaderValue"},
			`read blob "blob" in container data: the storage service answered 400 InvalidHeaderValue`, false},
	} {
		synctest.Test(t, func(t *testing.T) {
			b := setup(t)
			b.put(t, "blob", content(10))
			b.server.OnCall(func(call storage.Call) storage.Fault {
				if call.Operation == storage.OpGetBlob {
					return storage.Fault{Refuse: &c.refusal}
				}
				return storage.Fault{}
			})
			_, err := b.digest.Run(t.Context(), digestJob("blob", nil))
			if err == nil || err.Error() != c.want || job.IsPermanent(err) != c.permanent {
				t.Errorf("digest = %v\nwant     %s (permanent %t)", err, c.want, c.permanent)
			}
		})
	}
}
