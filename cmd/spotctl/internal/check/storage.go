package check

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/bloberror"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/container"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azqueue/v2/queueerror"
	"github.com/google/uuid"

	"github.com/spotworker/spotworker/internal/fleet/control"
	"github.com/spotworker/spotworker/internal/fleet/presence"
	"github.com/spotworker/spotworker/internal/overview"
	"github.com/spotworker/spotworker/internal/queue"
	"github.com/spotworker/spotworker/internal/storage/azure"
)

// queues examines the queues.
func (e *Examination) queues(ctx context.Context) (all []Finding) {
	s := e.stores
	all = append(all, e.shards(ctx)...)
	names := map[*queue.Queue]string{s.First: s.Names.First, s.OnDemand: s.Names.OnDemand, s.Poison: s.Names.Poison}
	for i, q := range s.Jobs.All() {
		names[q] = queue.ShardName(s.Names.Queue, i)
	}
	for _, q := range s.AllQueues() {
		check := "queue " + q.Name()
		n := 0
		err := e.measured(func() (err error) { n, err = q.Depth(ctx); return err })
		if err == nil {
			err = e.measured(func() error { _, err := q.Peek(ctx, 1); return err })
		}
		if err != nil {
			f := failed(check, err, "Storage Queue Data Reader")
			if queueerror.HasCode(err, queueerror.QueueNotFound) && q == s.OnDemand {
				f.Level, f.Text = Warning, "it does not exist: jobs cannot move to VMs of regular priority"
			}
			if queueerror.HasCode(err, queueerror.QueueNotFound) && q == s.First {
				f.Level, f.Text = Warning, "it does not exist: released jobs wait behind the others, and none can be urgent"
			}
			all = append(all, f)
			continue
		}
		f := Finding{Level: OK, Check: check, Text: fmt.Sprintf("about %d messages", n)}
		if q == s.Poison && n > 0 {
			f = Finding{Level: Warning, Check: check, Text: fmt.Sprintf("about %d dead-lettered messages", n), Fix: "spotctl poison list --summary"}
		}
		all = append(all, f, e.mayChange(check, "Storage Queue Data Contributor", func() error {
			_, err := s.Account.Queue(names[q]).DeleteMessage(ctx, uuid.NewString(), "AgAAAAMAAAAAAAAA", nil)
			return err
		}))
	}
	return all
}

// shards examines over how many queues the jobs are spread, and whether there are jobs on
// queues that workers do not know. A queue that cannot be read is reported with the
// others.
func (e *Examination) shards(ctx context.Context) []Finding {
	const check = "number of queues"
	jobs := e.stores.Jobs
	counts, err := jobs.Read(ctx)
	switch {
	case errors.Is(err, queue.ErrShards):
		return []Finding{{Level: Failure, Check: check, Text: err.Error(), Fix: "spotctl shards N, with the number of queues that have jobs"}}
	case err != nil:
		return nil
	}
	f := Finding{Level: OK, Check: check, Text: fmt.Sprintf("jobs are put over %d and taken from %d", counts.Put, counts.Taken)}
	for _, q := range jobs.Beyond() {
		n, err := q.Depth(ctx)
		if err != nil {
			break // usually there is none
		}
		if n > 0 {
			f.Level, f.Text = Failure, fmt.Sprintf("about %d messages are on %s, and jobs are taken from %d queues: no worker gets them", n,
				q.Name(), counts.Taken)
			f.Fix = fmt.Sprintf("set the number of queues to %d (spotctl shards, or queueShards of infra/bicep), or delete the queue if its "+
				"messages are of no use", counts.Taken+slices.Index(jobs.Beyond(), q)+1)
		}
	}
	return []Finding{f}
}

// containers examines the containers.
func (e *Examination) containers(ctx context.Context) (all []Finding) {
	s := e.stores
	for _, name := range s.ContainerNames() {
		check, c := "container "+name, s.Account.Container(name)
		if err := e.measured(func() error { return list(ctx, c) }); err != nil {
			f := failed(check, err, "Storage Blob Data Reader")
			if bloberror.HasCode(err, bloberror.ContainerNotFound) && name == s.Names.Control {
				f.Level, f.Text = Warning, "it does not exist: workers cannot be told of cancels, drains and pauses"
			}
			if bloberror.HasCode(err, bloberror.ContainerNotFound) && name == s.Names.Records {
				f.Text += ". " + overview.RecordsLost
			}
			if bloberror.HasCode(err, bloberror.ContainerNotFound) && name == s.Names.Outputs {
				f.Level, f.Text = Warning, "it does not exist: jobs cannot store output files, and workers with a kind that has outputs wait for it"
			}
			all = append(all, f)
			continue
		}
		all = append(all, Finding{Level: OK, Check: check, Text: "it can be read"})
		if name != s.Names.Workers { // workers alone write it
			all = append(all, e.mayChange(check, "Storage Blob Data Contributor", func() error {
				_, err := c.NewBlobClient("check/"+uuid.NewString()).Delete(ctx, nil)
				return err
			}))
		}
	}
	return all
}

// list reads one entry of a container.
func list(ctx context.Context, c *container.Client) error {
	_, err := c.NewListBlobsFlatPager(&container.ListBlobsFlatOptions{MaxResults: new(int32(1))}).NextPage(ctx)
	return err
}

// mayChange examines whether the caller has a role, by a call that fails in any case.
func (e *Examination) mayChange(check, role string, try func() error) Finding {
	err := try()
	var response *azcore.ResponseError
	switch {
	case !errors.As(err, &response):
		return Finding{Level: Warning, Check: check, Text: "whether you may change it is not known: " + azure.Explain(err), Fix: "try again"}
	case response.StatusCode == http.StatusForbidden || response.StatusCode == http.StatusUnauthorized:
		return Finding{
			Level: Warning, Check: check, Text: "you may read it and not change it: cancel, replay, purge and pause are refused where they need it",
			Fix: "assign yourself the role " + role + "; a new assignment takes up to 10 minutes",
		}
	}
	return Finding{Level: OK, Check: check, Text: "you may change it"}
}

// control examines the control document, and sets the service's clock by it.
func (e *Examination) control(ctx context.Context) []Finding {
	const check = "control document"
	began := time.Now()
	found, _, err := e.stores.Control.Read(ctx, "")
	switch {
	case errors.Is(err, control.ErrNewer):
		return []Finding{{Level: Failure, Check: check, Text: err.Error(), Fix: "use a newer spotctl; workers of this version do not " +
			"follow it either"}}
	case errors.As(err, new(*control.DamagedError)):
		return []Finding{{
			Level: Failure, Check: check, Text: err.Error() + "; workers keep to what they read last",
			Fix: "spotctl resume --all --reset replaces it, and ends all pauses, drains and quarantines",
		}}
	case err != nil:
		return []Finding{failed(check, err, "Storage Blob Data Reader")}
	}
	e.mu.Lock()
	e.offsets = append(e.offsets, found.ReadAt.Sub(began.Add(time.Since(began)/2)))
	e.mu.Unlock()
	d := found.Document
	if held := len(d.Drains) + len(d.Quarantine) + len(d.PausedKinds); d.Pause != nil || d.DrainAll != nil || held > 0 {
		return []Finding{{Level: Warning, Check: check, Text: "operators keep workers from jobs",
			Fix: "spotctl status shows what is asked, and how to end it"}}
	}
	return []Finding{{Level: OK, Check: check, Text: "nothing keeps workers from jobs"}}
}

// clock compares this machine's clock with the service's, which shows whole seconds.
func (e *Examination) clock() Finding {
	const check = "clock of this machine"
	if len(e.offsets) == 0 {
		return Finding{Level: Warning, Check: check, Text: "not compared with the service's, since no answer came", Fix: "fix what is above"}
	}
	off := e.offsets[0].Round(time.Second)
	if off.Abs() > presence.ClockLimit {
		return Finding{
			Level: Warning, Check: check, Text: fmt.Sprintf("it differs by %s from the storage service's", off.Abs()),
			Fix: "synchronise it (chrony, systemd-timesyncd or w32tm): from 15 min on all calls are refused",
		}
	}
	return Finding{Level: OK, Check: check, Text: "it agrees with the storage service's"}
}

// failed is the finding about a queue or container that cannot be read.
func failed(check string, err error, role string) Finding {
	f := Finding{Level: Failure, Check: check, Text: azure.ExplainRole(err, role),
		Fix: "check that the account exists, and that this machine can reach it"}
	switch {
	case azure.IsSignIn(err):
		return Finding{
			Level: Failure, Check: signIn, Text: fmt.Sprintf("%s: %s", check, azure.ExplainRole(err, role)),
			Fix: "check the key in the connection string, or sign in again with the account's tenant (az login); then this machine's clock",
		}
	case bloberror.HasCode(err, bloberror.ContainerNotFound) || queueerror.HasCode(err, queueerror.QueueNotFound):
		f.Text, f.Fix = "it does not exist", "check --account and --prefix; deploy the foundation, or put a job with an identity that may "+
			"create it"
	case azure.LacksRole(err):
		f.Text, f.Fix = "you may not read it", "assign yourself the role "+role+", on the account or on this; a new assignment takes up "+
			"to 10 minutes"
	}
	return f
}
