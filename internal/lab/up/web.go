package up

import (
	"fmt"
	"net/http"
	"strings"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"

	"github.com/spotworker/spotworker/client"
	"github.com/spotworker/spotworker/internal/lab/emulator/storage"
	"github.com/spotworker/spotworker/internal/storage/azure"
	"github.com/spotworker/spotworker/internal/web"
)

// listenWeb opens the page of the deployment, as spotctl web --allow-changes serves it.
func (u *up) listenWeb() (*web.Server, error) {
	transports := byAccount{}
	o := client.Options{Transport: transports, Name: "lab", Version: "lab"}
	for i, server := range append([]*storage.Server{u.local.Storage}, u.local.Further...) {
		transports[u.local.AccountNames()[i]] = server.Transport()
		if i == 0 {
			o.ConnectionString = server.ConnectionString()
		} else {
			o.MoreConnectionStrings = append(o.MoreConnectionStrings, server.ConnectionString())
		}
	}
	c, err := client.Open(o)
	if err != nil {
		return nil, err
	}
	return web.Listen(web.Config{
		Title: "the local Azure of lab up", Version: "of lab up", Client: c, Explain: azure.Explain, AllowChanges: true, Control: u.names.Control,
	})
}

// byAccount sends calls to the storage account in their path, without a socket.
type byAccount map[string]policy.Transporter

// Do implements [policy.Transporter].
func (t byAccount) Do(r *http.Request) (*http.Response, error) {
	name, _, _ := strings.Cut(strings.TrimPrefix(r.URL.Path, "/"), "/")
	to := t[name]
	if to == nil {
		return nil, fmt.Errorf("there is no storage account %q here", name)
	}
	return to.Do(r)
}
