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

// getResource answers az rest: the queues of an account, and one queue with its metadata.
// A list of queues has no metadata. The note "spread" is "accounts/number".
func getResource(c azCall) (any, error) {
	url, _, _ := strings.Cut(c.options["--url"], "?")
	account, queue, _ := strings.Cut(strings.TrimPrefix(url, "/subscriptions/"), "/queueServices/default/queues")
	if c.options["--method"] != "get" || !strings.Contains(c.options["--url"], "?api-version=") {
		return nil, errors.New("(BadRequest)")
	}
	queues := []string{"spotworker-jobs", "spotworker-jobs-ondemand"}
	switch account {
	case "new":
		queues = nil
	case "first", "more":
	default:
		return nil, errors.New("(Forbidden)")
	}
	if queue == "" {
		list := []any{}
		for _, name := range queues {
			list = append(list, object{"name": name, "properties": object{}})
		}
		return object{"value": list}, nil
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

// listBlobs has heartbeats in the workers' container, and packages elsewhere. Metadata is
// there only if it is asked for.
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
		list := []any{with("vm-gone", object{"program": "1.2.3", "state": "process", "at": "1"})}
		workers, _ := strconv.Atoi(cmpOr(c.read("heartbeats"), "1"))
		for i := 0; i < workers && !c.has("silent"); i++ {
			list = append(list, with("vm-"+strconv.Itoa(i), object{"program": c.read("program"), "state": c.read("state"), "at": now()}))
		}
		return list, nil
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
	note := blobNote(c.options["--name"])
	if c.has(note) && c.options["--overwrite"] != "true" {
		return nil, fmt.Errorf("(BlobAlreadyExists) %s", c.options["--name"])
	}
	c.take(note)
	c.add(note, strings.TrimPrefix(c.options["--metadata"], "sha256="))
	return nil, nil
}
