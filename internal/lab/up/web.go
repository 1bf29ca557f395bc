package up

import (
	"github.com/spotworker/spotworker/client"
	"github.com/spotworker/spotworker/internal/storage/azure"
	"github.com/spotworker/spotworker/internal/web"
)

// listenWeb opens the page of the deployment, as spotctl web --allow-changes serves it.
func (u *up) listenWeb() (*web.Server, error) {
	c, err := client.Open(client.Options{Transport: u.local.Storage.Transport(), ConnectionString: u.local.Storage.ConnectionString(),
		Name: "lab", Version: "lab"})
	if err != nil {
		return nil, err
	}
	return web.Listen(web.Config{
		Title: "the local Azure of lab up", Version: "of lab up", Client: c, Explain: azure.Explain, AllowChanges: true, Control: u.names.Control,
	})
}
