package histories

import (
	"math/rand/v2"
	"time"

	"github.com/spotworker/spotworker/internal/lab/emulator/storage"
	"github.com/spotworker/spotworker/internal/operate"
	"github.com/spotworker/spotworker/internal/queue"
	"github.com/spotworker/spotworker/internal/storage/deployment"
	"github.com/spotworker/spotworker/internal/test/worker/recorder"
	"github.com/spotworker/spotworker/internal/test/worker/rig"
)

// accountMix is how the jobs of a history are spread over accounts.
type accountMix struct {
	count   int             // of accounts; 0 for one
	lack    map[string]bool // workers that were not given the second account, by VM
	addedAt time.Duration   // when an operator spreads jobs over both; 0 for before the start
}

// mixAccounts spreads the jobs of every third history over two accounts, some of them from
// the middle on. Some workers were not given the second account, and one of the accounts
// may fail for a while. It has a random source of its own, so that the rest of the plan
// does not depend on it.
func (p *plan) mixAccounts() {
	r := &random{rand.New(rand.NewPCG(p.seed, 0xacc7))}
	if !r.oneIn(3) {
		return
	}
	p.accounts = accountMix{count: 2, lack: map[string]bool{}}
	if r.oneIn(2) {
		p.accounts.addedAt = r.between(time.Second, p.ends/2)
	}
	for _, w := range p.runs {
		p.accounts.lack[w.vm] = r.oneIn(4) || p.shards.unaware[w.vm]
	}
	if r.oneIn(2) {
		fails := faultPeriod{from: r.between(0, p.ends), what: faultKind(r.IntN(int(faultKinds))), share: 1, account: "/" + rig.AccountName(1) +
			"/"}
		if r.oneIn(2) {
			fails.account = "/" + storage.DefaultAccount + "/"
		}
		fails.to = fails.from + r.between(10*time.Second, 3*time.Minute)
		p.faults.periods = append(p.faults.periods, fails)
	}
}

// takenFrom returns from when on workers that were given all accounts take jobs from
// them: an account that is not ready is checked every 15 s, give or take a quarter.
func (m accountMix) takenFrom() time.Duration {
	if m.addedAt == 0 {
		return 0
	}
	return m.addedAt + time.Minute
}

// useAccounts makes the accounts. The deployment says at first that it has one, unless
// there are two from the start.
func (h *history) useAccounts() {
	if h.accounts.count == 0 {
		return
	}
	a := h.b.MakeAccounts(h.accounts.count)
	a.Lack = h.accounts.lack
	h.recorder.HomeOf = func(id string) string { return rig.AccountName(h.homeOf(id)) }
	n := 1
	if h.accounts.addedAt == 0 {
		n = h.accounts.count
	}
	if _, err := operate.SpreadOver(h.t.Context(), a.All, n, false); err != nil {
		h.t.Fatal(err)
	}
	// An operator must not spread chosen ids of an empty deployment while producers run:
	// a producer that has not read that yet puts them where they were. So it is never
	// empty.
	if _, err := h.b.Records.Cancel(h.t.Context(), "earlier", recorder.Operator, "", true); err != nil {
		h.t.Fatal(err)
	}
}

// spreadOverAccounts spreads the jobs over all accounts as an operator does, who repeats a
// command that failed.
func (h *history) spreadOverAccounts() {
	all := h.b.Accounts.Connect(h.accounts.count, h.operatorLink(0, 0), nil, nil)
	for {
		if _, err := operate.SpreadOver(h.t.Context(), all, h.accounts.count, false); err == nil {
			return
		}
		time.Sleep(5 * time.Second)
	}
}

// homeOf returns the account of a job by its number. A job with a random id, which is put
// once, is where its first put goes; messages of it that are put later are duplicates. A
// chosen id is where each put goes.
func (h *history) homeOf(id string) int {
	if h.accounts.count == 0 || h.plan.job(id) == nil {
		return 0
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if at, ok := h.homes[id]; ok && !h.mix.chosenIDs[id] {
		return at
	}
	q, err := h.b.Accounts.All.Spread.Place(id, h.mix.chosenIDs[id])
	if err != nil {
		h.t.Errorf("account of job %s: %v", id, err)
		return 0
	}
	at := 0
	if q.Account() != "" {
		at = 1
	}
	if was, ok := h.homes[id]; ok && was != at {
		h.t.Errorf("job %s with a chosen id belongs in account %d, and was put in account %d before", id, at, was)
	}
	h.homes[id] = at
	return at
}

// storesFor returns the stores of the account of a job.
func (h *history) storesFor(id string) *deployment.Stores {
	if at := h.homeOf(id); at > 0 {
		return h.b.ConnectAt(at, h.b.Transport("test"))
	}
	return h.b.Stores
}

// recordsOver returns the records of the accounts in which a job may be, as an operator's
// program looks for them: nil where there is one account, or the second is not used yet.
func (h *history) recordsOver(k *rig.Link) func(id string) []operate.AccountRecords {
	if h.accounts.count == 0 {
		return nil
	}
	if known, err := h.b.Accounts.All.Spread.Known(); err != nil || known.Accounts() < h.accounts.count {
		return nil
	}
	return func(id string) []operate.AccountRecords {
		all := []operate.AccountRecords{{Store: h.b.ConnectAt(0, k).Records, Account: "first"},
			{Store: h.b.ConnectAt(1, k).Records, Account: "second"}}
		if queue.AccountOf(id, 2) == 1 {
			all[0], all[1] = all[1], all[0]
		}
		return all
	}
}

// isGivenAll reports whether a worker was given both accounts.
func (h *history) isGivenAll(vm string) bool {
	return h.accounts.count > 0 && !h.accounts.lack[vm]
}

// slotsOfAccount returns how many slots of a worker jobs of one account may have.
func (h *history) slotsOfAccount(w workerRun) int {
	if !h.isGivenAll(w.vm) || w.concurrency == 1 {
		return w.concurrency
	}
	return w.concurrency - max(w.concurrency/rig.KeptShare, 1)
}
