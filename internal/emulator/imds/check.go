package imds

import (
	"net/http"
	"slices"
	"strings"
	"time"
)

// checkOrigin refuses what may have been redirected to the service unknowingly:
// a request without Metadata: true, or one that a proxy forwarded.
func (c call) checkOrigin() *reply {
	switch {
	case !c.hasMetadataHeader():
		return refuse(http.StatusBadRequest, "the header Metadata: true is missing")
	case len(c.header.Values("X-Forwarded-For")) > 0:
		return refuse(http.StatusBadRequest, "X-Forwarded-For is not allowed: do not use a proxy")
	}
	for name, values := range c.query {
		if len(values) > 1 {
			return refuse(http.StatusBadRequest, "the parameter %s is given more than once", name)
		}
	}
	return nil
}

func (c call) hasMetadataHeader() bool { return strings.EqualFold(c.header.Get("Metadata"), "true") }

// checkVersion wants one of the supported api-versions. A missing or malformed
// one is a bad request whose answer lists the newest; one that merely is not
// served is not found, which clients take as a reason to ask for an older one.
func (c call) checkVersion(supported []string) *reply {
	if slices.Contains(supported, c.Version) {
		return nil
	}
	if _, err := time.Parse(time.DateOnly, c.Version); err == nil {
		return refuse(http.StatusNotFound, "there is no api-version %s here", c.Version)
	}
	const problem = "api-version is missing or is none"
	r := jsonReply(http.StatusBadRequest, errorJSON{Error: problem, NewestVersions: newest(instanceVersions, 3)})
	r.problem = problem
	return &r
}

// unknownPath is the answer to a path that no endpoint has. The version is
// looked at first, as it is on Azure.
func (c call) unknownPath() reply {
	if bad := c.checkVersion(allVersions()); bad != nil {
		return *bad
	}
	return *refuse(http.StatusNotFound, "there is nothing at this path")
}

// versions answers /metadata/versions, the one endpoint without a version.
func (c call) versions() reply {
	if c.Method != http.MethodGet {
		return *methodNotAllowed(http.MethodGet)
	}
	return jsonReply(http.StatusOK, map[string][]string{"apiVersions": allVersions()})
}

// allVersions returns those of all endpoints, oldest first, each once.
func allVersions() []string {
	return slices.Compact(slices.Sorted(slices.Values(slices.Concat(eventsVersions, instanceVersions, tokenVersions))))
}

// newest returns the last n of versions, newest first.
func newest(versions []string, n int) []string {
	latest := slices.Clone(versions[len(versions)-n:])
	slices.Reverse(latest)
	return latest
}
