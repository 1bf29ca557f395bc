package conformance

import (
	"encoding/base64"
	"strings"
	"testing"
)

var keyCases = []testCase{
	{fact: "WrongKeyIs403", check: wrongKey},
	{fact: "UnknownAccountIsRefused", check: unknownAccount},
}

// withSetting is the connection string with one setting replaced.
func withSetting(connectionString, name, value string) string {
	settings := strings.Split(strings.TrimRight(connectionString, ";"), ";")
	for i, s := range settings {
		if strings.HasPrefix(s, name+"=") {
			settings[i] = name + "=" + value
		}
	}
	return strings.Join(settings, ";") + ";"
}

// wantForbidden demands 403 of both services.
func wantForbidden(t *testing.T, e *env, who string) {
	t.Helper()
	_, err := e.queues.CreateQueue(t.Context(), uniqueName(), nil)
	wantRefused(t, err, 403, "", "CreateQueue with "+who)
	_, err = e.blobs.CreateContainer(t.Context(), uniqueName(), nil)
	wantRefused(t, err, 403, "", "CreateContainer with "+who)
	_, err = e.blobs.ServiceClient().NewContainerClient(uniqueName()).NewBlockBlobClient("blob").Upload(t.Context(), body("text"), nil)
	wantRefused(t, err, 403, "", "Upload with "+who)
	_, err = e.blobs.ServiceClient().NewContainerClient(uniqueName()).NewBlobClient("blob").GetProperties(t.Context(), nil)
	wantRefused(t, err, 403, "", "GetProperties with "+who)
}

func wrongKey(t *testing.T, e *env) {
	forged := e.target
	forged.ConnectionString = withSetting(e.target.ConnectionString, "AccountKey", base64.StdEncoding.EncodeToString([]byte("another key")))
	wantForbidden(t, newEnv(t, forged), "another key")
}

func unknownAccount(t *testing.T, e *env) {
	forged := e.target
	forged.ConnectionString = withSetting(e.target.ConnectionString, "AccountName", "somebodyelse")
	wantForbidden(t, newEnv(t, forged), "another account's name")
}
