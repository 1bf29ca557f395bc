package imds

import (
	"net/http"
	"strconv"
)

// instanceVersions are the documented versions that have every field which is
// emulated; user data came with 2021-01-01. They are not those of events.
var instanceVersions = []string{
	"2021-01-01", "2021-02-01", "2021-03-01", "2021-05-01", "2021-08-01",
	"2021-10-01", "2021-11-01", "2021-11-15", "2021-12-13", "2023-07-01",
	"2023-11-15", "2024-03-15", "2024-07-17", "2025-04-07",
}

// instance answers /metadata/instance and the paths below it, each of whose
// segments is a key, or an index, of the document. A branch is JSON; a leaf is
// plain text and must be asked for with format=text. There is no network part.
func (g *Guest) instance(c call, below []string) reply {
	if c.Method != http.MethodGet {
		return *methodNotAllowed(http.MethodGet)
	}
	if bad := c.checkVersion(instanceVersions); bad != nil {
		return *bad
	}
	g.server.mu.Lock()
	document := map[string]any{"compute": g.vm.compute()}
	g.server.mu.Unlock()

	node, ok := descend(document, below)
	if !ok {
		return *refuse(http.StatusNotFound, "the instance has no such element")
	}
	leaf, isLeaf := node.(string)
	format := c.query.Get("format")
	switch {
	case isLeaf && format == "text":
		return reply{status: http.StatusOK, contentType: contentText, body: []byte(leaf)}
	case !isLeaf && (format == "" || format == "json"):
		return jsonReply(http.StatusOK, node)
	default:
		return *refuse(http.StatusBadRequest, "the format %q does not fit: text for a leaf, json for the rest", format)
	}
}

// descend follows path from node.
func descend(node any, path []string) (any, bool) {
	for _, segment := range path {
		var ok bool
		switch parent := node.(type) {
		case map[string]any:
			node, ok = parent[segment]
		case []any:
			i, err := strconv.Atoi(segment)
			if ok = err == nil && i >= 0 && i < len(parent); ok {
				node = parent[i]
			}
		}
		if !ok {
			return nil, false
		}
	}
	return node, true
}
