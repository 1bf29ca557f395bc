package outages

import (
	"net/http"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/spotworker/spotworker/internal/lab/emulator/imds"
	"github.com/spotworker/spotworker/internal/lab/emulator/storage"
	"github.com/spotworker/spotworker/internal/lab/emulator/token"
	"github.com/spotworker/spotworker/internal/lifecycle"
	"github.com/spotworker/spotworker/internal/storage/azure"
	"github.com/spotworker/spotworker/internal/test/worker/rig"
	"github.com/spotworker/spotworker/job"
)

// tokenLife is how long a token is valid in this test; on Azure it is a day.
const tokenLife = 30 * time.Minute

// onVM is the network of a VM with an identity: the metadata service at its fixed
// address, and storage. Nothing else exists, and nothing leaves the process.
type onVM struct {
	vm      *imds.Guest
	storage *faultyTransport
}

func (n onVM) Do(r *http.Request) (*http.Response, error) {
	if r.URL.Host == "169.254.169.254" {
		return n.vm.RoundTripper().RoundTrip(r)
	}
	return n.storage.Do(r)
}

// TestTokenEndpointDown: the token endpoint does not answer when the worker starts,
// and later for longer than a token is valid. The worker waits and logs that, and no
// job is stopped.
func TestTokenEndpointDown(t *testing.T) {
	for _, name := range []string{"IDENTITY_ENDPOINT", "IDENTITY_HEADER", "MSI_ENDPOINT", "MSI_SECRET", "IMDS_ENDPOINT"} {
		t.Setenv(name, "")
	}
	rig.Run(t, func(t *testing.T, b *rig.Bed) {
		issuer, client := token.NewIssuer(), uuid.NewString()
		b.Server = storage.New(storage.Options{Account: "devstoreaccount1", Tokens: issuer})
		tokens := imds.New(imds.Options{Tokens: issuer, TokenLife: tokenLife})
		vm := tokens.AddVM(imds.VM{Name: "vm_0", Identities: []imds.Identity{{ClientID: client, ObjectID: uuid.NewString(),
			ResourceID: "/subscriptions/s/identity"}}})
		b.Stores = b.Connect(b.Server.Transport())
		owner := b.Account(b.Server.Transport())
		for _, name := range []string{b.Names.Records, b.Names.Payloads, b.Names.Workers} {
			if _, err := owner.Container(name).Create(t.Context(), nil); err != nil {
				t.Fatal(err)
			}
		}
		for _, q := range b.AllQueues() {
			if err := q.Create(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		at := b.Server.Endpoints()
		account, err := azure.Connect(azure.AccountConfig{
			Account: "devstoreaccount1", ClientID: client, BlobEndpoint: at.Blob, QueueEndpoint: at.Queue,
			Transport: onVM{vm, &faultyTransport{next: b.Server.Transport()}},
		})
		if err != nil {
			t.Fatal(err)
		}
		down := func() { tokens.OnRequest(func(imds.Request) imds.Fault { return imds.Fault{Status: http.StatusGone} }) }
		up := func() { tokens.OnRequest(nil) }

		down()
		log := &rig.Log{}
		work := &rig.Steps{N: 100, Each: time.Minute}
		b.Put("long", "steps", "")
		p := b.Start("vm_0", job.Kinds{"steps": work}, useAccount(b, account, log))
		time.Sleep(5 * time.Minute)
		if got := p.Position().State; got != lifecycle.Start {
			t.Errorf("state without a token = %s, want start", got)
		}
		if want := "sign in as the identity " + client + ": no token: ManagedIdentityCredential: no answer in time"; !log.Contains("error",
			want) {
			t.Errorf("errors are %q, want one that says %q", log.Values("error"), want)
		}
		up()
		b.WaitFor("a checkpoint", 5*time.Minute, func() bool { return b.Record("long").HasState() })

		down()
		time.Sleep(tokenLife + 10*time.Minute)
		before := b.Record("long").ModifiedAt
		time.Sleep(5 * time.Minute)
		if after := b.Record("long").ModifiedAt; !after.Equal(before) {
			t.Fatal("the record is still written: the test does not take the worker's token away")
		}
		up()
		time.Sleep(60 * time.Minute)
		b.WaitDone("long", 10*time.Minute)
		if r := b.Record("long"); r.Generation != 1 || r.Failures+r.Interruptions > 0 || work.Repeated("long") > 0 {
			t.Errorf("generation %d, %d failures, %d interruptions, %d steps repeated, want 1 and none", r.Generation, r.Failures, r.Interruptions,
				work.Repeated("long"))
		}
	})
}
