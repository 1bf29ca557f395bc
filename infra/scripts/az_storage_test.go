package scripts

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// listAccounts has the noted accounts of the deployment's resource group, the noted
// accounts of the first region, and one account without queues.
func listAccounts(c azCall) (any, error) {
	list := []any{object{"id": "/subscriptions/without-queues", "name": "withoutqueues", "primaryEndpoints": object{"blob": "https://x/"}}}
	note := "accounts"
	if c.options["--resource-group"] == "firstregion" {
		note = "accountsoffirst"
	}
	for _, id := range c.lines(note) {
		list = append(list, object{"id": id, "name": id[strings.LastIndex(id, "/")+1:], "primaryEndpoints": object{"queue": "https://x/"}})
	}
	return list, nil
}

// resourceManager begins the addresses that Azure gives for next pages.
const resourceManager = "https://management.azure.com"

// getResource answers az rest: the queues of an account, and one queue with its metadata.
// A list of queues has no metadata, and pages of one queue; the first page is empty. The
// note "spread" is "accounts/number".
func getResource(c azCall) (any, error) {
	url, query, _ := strings.Cut(strings.TrimPrefix(c.options["--url"], resourceManager), "?")
	account, queue, _ := strings.Cut(strings.TrimPrefix(url, "/subscriptions/"), "/queueServices/default/queues")
	if c.options["--method"] != "get" || !strings.HasPrefix(query, "api-version=") {
		return nil, errors.New("(BadRequest)")
	}
	queues := []string{"other-jobs", "spotworker-jobs-ondemand", "spotworker-jobs", "spotworker-jobs-poison"}
	switch account {
	case "new":
		queues = queues[:2]
	case "first", "more":
	default:
		return nil, errors.New("(Forbidden)")
	}
	if queue == "" {
		version, token, _ := strings.Cut(query, "&$skiptoken=")
		at, _ := strconv.Atoi(token)
		list := []any{}
		if at > 0 {
			list = append(list, object{"name": queues[at-1], "properties": object{}})
		}
		if at == len(queues) {
			return object{"value": list}, nil
		}
		return object{"value": list, "nextLink": fmt.Sprintf("%s%s?%s&$skiptoken=%d", resourceManager, url, version, at+1)}, nil
	}
	if !slices.Contains(queues, strings.TrimPrefix(queue, "/")) {
		return nil, errors.New("(QueueNotFound)")
	}
	metadata := object{}
	names, number, _ := strings.Cut(c.read("spread"), "/")
	if account == "first" {
		for key, v := range map[string]string{"accounts": names, "accountids": number} {
			if c.has("capitals") {
				key = strings.ToUpper(key[:1]) + key[1:]
			}
			if v != "" {
				metadata[key] = v
			}
		}
	}
	return object{"name": strings.TrimPrefix(queue, "/"), "properties": object{"metadata": metadata}}, nil
}

// blobNote is the note of a blob's digest.
func blobNote(name string) string { return "blob_" + strings.ReplaceAll(name, "/", "_") }

// listedBlobs is how many blobs az lists without --num-results.
const listedBlobs = 5000

// listBlobs has heartbeats in the workers' container, and packages elsewhere. Metadata is
// there only if it is asked for. The note "gone" is how many workers are gone.
func listBlobs(c azCall) (any, error) {
	with := func(name string, metadata object) object {
		if !strings.Contains(c.options["--include"], "m") {
			return object{"name": name, "metadata": nil}
		}
		return object{"name": name, "metadata": metadata}
	}
	if strings.HasSuffix(c.options["--container-name"], "-workers") {
		if c.has("grown") {
			if err := os.Rename(filepath.Join(string(c.notes), "grown"), filepath.Join(string(c.notes), "capacity")); err != nil {
				return nil, err
			}
		}
		gone, _ := strconv.Atoi(cmpOr(c.read("gone"), "1"))
		var list []any
		for i := range gone {
			list = append(list, with("a-gone-"+strconv.Itoa(i), object{"program": "1.2.3", "state": "process", "at": "1"}))
		}
		workers, _ := strconv.Atoi(cmpOr(c.read("heartbeats"), "1"))
		for i := 0; i < workers && !c.has("silent"); i++ {
			list = append(list, with("vm-"+strconv.Itoa(i), object{"program": c.read("program"), "state": c.read("state"), "at": now()}))
		}
		if c.options["--num-results"] != "*" {
			list = list[:min(len(list), listedBlobs)]
		}
		return list, nil
	}
	if c.has("refused") {
		return nil, errors.New("AuthorizationFailure")
	}
	if c.take("refuse") {
		return nil, errors.New("AuthorizationPermissionMismatch")
	}
	list := []any{}
	files, err := filepath.Glob(filepath.Join(string(c.notes), blobNote(c.options["--prefix"])+"*"))
	if err != nil || c.has("stale") {
		return list, err
	}
	for _, file := range files {
		name := strings.Replace(strings.TrimPrefix(filepath.Base(file), "blob_"), "_", "/", 1)
		list = append(list, with(name, object{"sha256": c.read(filepath.Base(file))}))
	}
	return list, nil
}

// uploadBlob overwrites only if it is told to.
func uploadBlob(c azCall) (any, error) {
	digest, err := digestOf(c.options["--file"])
	if err != nil || c.options["--metadata"] != "sha256="+digest {
		return nil, fmt.Errorf("--metadata is %q of a file with the digest %s (%w)", c.options["--metadata"], digest, err)
	}
	note := blobNote(c.options["--name"])
	if c.has(note) && c.options["--overwrite"] != "true" {
		return nil, fmt.Errorf("(BlobAlreadyExists) %s", c.options["--name"])
	}
	c.take(note)
	c.add(note, strings.TrimPrefix(c.options["--metadata"], "sha256="))
	return object{"lastModified": "2026-01-01"}, nil
}
