package operate

import (
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/spotworker/spotworker/internal/checkpoint"
	"github.com/spotworker/spotworker/internal/lab/emulator/storage"
	"github.com/spotworker/spotworker/internal/queue"
)

// loseText deletes the blobs with the texts of poison messages.
func (b *rig) loseText(t *testing.T) {
	t.Helper()
	lost := 0
	for _, blob := range b.server.Blobs(b.names.Payloads) {
		if !strings.HasPrefix(blob.Name, "poison/") {
			continue
		}
		lost++
		if _, err := b.stores.Account.Container(b.names.Payloads).NewBlobClient(blob.Name).Delete(t.Context(), nil); err != nil {
			t.Fatal(err)
		}
	}
	if lost == 0 {
		t.Fatal("no text is in a blob")
	}
}

// nest puts a poison message around the text of the one on the queue, so many times.
func (b *rig) nest(t *testing.T, times int) {
	t.Helper()
	for i := range times {
		text := b.server.Messages(b.names.Poison)[0].Text
		if _, err := b.stores.Account.Queue(b.names.Poison).ClearMessages(t.Context(), nil); err != nil {
			t.Fatal(err)
		}
		b.putPoison(t, queue.Poison{ID: "a", Reason: "a poison message", PoisonedAt: time.Now(), Origin: b.names.Queue,
			MessageID: fmt.Sprint("nest-", i), Body: text})
	}
}

// noPoison is the fault of the text hello.
const noPoison = "not a poison message: it is not base64: illegal base64 data at input byte 4"

// odd are unusual poison messages and their outcomes: action, job, detail.
var odd = map[string]struct {
	put           func(t *testing.T, b *rig)
	kind          string // the default kind
	byMessage     bool   // the messages are selected by their own ids
	replay, purge []string
}{
	"no poison message": {
		put:    func(t *testing.T, b *rig) { b.putText(t, "hello") },
		replay: []string{"refused of : " + noPoison + "; purge can remove it"}, purge: []string{"purged of : " + noPoison},
	},
	"a job on the wrong queue": {
		put: func(t *testing.T, b *rig) {
			text, err := queue.Envelope{ID: "b", Kind: "k"}.Encode()
			if err != nil {
				t.Fatal(err)
			}
			b.putText(t, text)
		},
		replay: []string{"refused of : not a poison message"}, purge: []string{"purged of : not a poison message"},
	},
	"no record and no text": {
		put: func(t *testing.T, b *rig) { b.put(t, given{id: "a", payload: wide, gone: true}); b.loseText(t) },
		replay: []string{"refused of a: the text of its message is gone, and with it the payload; " +
			"put the job again under another id"},
		purge: []string{"purged of a: the text of its message was gone"},
	},
	"no text": {
		put: func(t *testing.T, b *rig) { b.put(t, given{id: "a", payload: wide}); b.loseText(t) },
		replay: []string{"refused of a: the text of its message is gone, and with it the payload; " +
			"put the job again under another id"},
		purge: []string{"purged of a: the text of its message was gone"},
	},
	"no text of a running job": {
		put: func(t *testing.T, b *rig) {
			b.put(t, given{id: "a", payload: wide, status: checkpoint.Running})
			b.loseText(t)
		},
		replay: []string{"dropped of a: its job is active again: it is running"},
		purge:  []string{"dropped of a: its job is active again: it is running"},
	},
	"no text of a job that is done": {
		put: func(t *testing.T, b *rig) {
			b.put(t, given{id: "a", payload: wide, status: checkpoint.Done})
			b.loseText(t)
		},
		replay: []string{"dropped of a: its job is done already"}, purge: []string{"dropped of a: its job is done already"},
	},
	"no text of other work": {
		put: func(t *testing.T, b *rig) {
			b.giveUp(t, given{}, queue.Envelope{ID: "a", Kind: "other"}, b.lease(t))
			b.put(t, given{id: "a", payload: wide, gone: true})
			b.loseText(t)
		},
		replay: []string{`refused of a: the id was used for other work: its kind is "other"`},
		purge:  []string{`refused of a: the id was used for other work: its kind is "other"`},
	},
	"no text and no kind": {
		put: func(t *testing.T, b *rig) {
			b.giveUp(t, given{}, queue.Envelope{ID: "a", Kind: "other"}, b.lease(t))
			b.putPoison(t, queue.Poison{ID: "a", Reason: "no", PoisonedAt: time.Now(), MessageID: "m-1", BodyBlob: "poison/m-1"})
		},
		replay: []string{"refused of a: the text of its message is gone, and with it the payload; " +
			"put the job again under another id"},
		purge: []string{"purged of a: the text of its message was gone"},
	},
	"no text and a newer record": {
		put: func(t *testing.T, b *rig) {
			b.put(t, given{id: "a", payload: wide})
			b.loseText(t)
			b.setVersion(t, "a", "99")
		},
		replay: []string{"refused of a: record cannot be read by this version"},
		purge:  []string{"refused of a: record cannot be read by this version"},
	},
	"no text and no valid id": {
		put: func(t *testing.T, b *rig) {
			b.putPoison(t, queue.Poison{ID: "a b", Kind: "k", Reason: "no", PoisonedAt: time.Now(), MessageID: "m-1", BodyBlob: "poison/m-1"})
		},
		replay: []string{"refused of : the text of its message is gone, and with it the payload; put the job again under another id"},
		purge:  []string{"purged of : the text of its message was gone"},
	},
	"another program's, without a kind": {
		put: func(t *testing.T, b *rig) {
			b.putPoison(t, queue.Poison{ID: "x", Reason: "no", PoisonedAt: time.Now(), MessageID: "m-1", Body: "hello"})
		},
		kind:   "k",
		replay: []string{"refused of x: " + errNoKind.Error()}, purge: []string{"purged of x: " + errNoKind.Error()},
	},
	"another program's, of the default kind": {
		put: func(t *testing.T, b *rig) {
			b.putPoison(t, queue.Poison{Reason: "neither", PoisonedAt: time.Now(), MessageID: "m-1", Body: "hello"})
		},
		kind:   "k",
		replay: []string{"replayed of m-1: from scratch: its record is gone"}, purge: []string{"purged of m-1: neither"},
	},
	"another program's, which failed": {
		put: func(t *testing.T, b *rig) {
			b.putPoison(t, queue.Poison{ID: "m-1", Kind: "k", Reason: "failed", PoisonedAt: time.Now(), MessageID: "m-1", Body: "hello"})
		},
		replay: []string{"replayed of m-1: from scratch: its record is gone"}, purge: []string{"purged of m-1: failed"},
	},
	"another program's, without an id": {
		put: func(t *testing.T, b *rig) {
			b.putPoison(t, queue.Poison{Kind: "k", Reason: "no", PoisonedAt: time.Now(), MessageID: "m-1", Body: "hello"})
		},
		replay: []string{"replayed of : as it was, although this version cannot read it: it cannot be a job: job id"},
		purge:  []string{"purged of : it cannot be a job: job id"},
	},
	"a message of a newer version": {
		put: func(t *testing.T, b *rig) {
			b.putPoison(t, queue.Poison{ID: "a", Reason: "version 3", PoisonedAt: time.Now(), MessageID: "m-1",
				Body: `{"v":3,"id":"a","kind":"k"}`})
		},
		replay: []string{"replayed of a: as it was, although this version cannot read it: "}, purge: []string{"purged of a: "},
	},
	"a text in a blob": {
		put:    func(t *testing.T, b *rig) { b.put(t, given{id: "a", payload: wide, state: "half"}) },
		replay: []string{"replayed of a: from its state, 50 % done"}, purge: []string{"purged of a: 5 failures in a row"},
	},
	"a payload in a blob": {
		put:    func(t *testing.T, b *rig) { b.put(t, given{id: "a", payload: wide, offload: true, outputs: 2}) },
		replay: []string{"replayed of a: from its 2 outputs: there is no recorded state"}, purge: []string{"purged of a: 5 failures in a row"},
	},
	"twice": {
		put: func(t *testing.T, b *rig) { b.put(t, given{id: "a", twice: true}) },
		replay: []string{"replayed of a: from scratch: there is no recorded state",
			"dropped of a: it is a duplicate; the job was replayed just now"},
		purge: []string{"purged of a: 5 failures in a row", "dropped of a: it is a duplicate; the job was purged just now"},
	},
	"two messages of a job": {
		put: func(t *testing.T, b *rig) {
			b.put(t, given{id: "a"})
			time.Sleep(3 * time.Second)
			b.put(t, given{id: "a", gone: true})
			time.Sleep(3 * time.Second)
		},
		replay: []string{"replayed of a: from scratch: there is no recorded state",
			"dropped of a: it is a duplicate; the job was replayed just now"},
		purge: []string{"purged of a: 5 failures in a row", "dropped of a: it is a duplicate; the job was purged just now"},
	},
	"a job that is done": {
		put: func(t *testing.T, b *rig) {
			b.put(t, given{id: "a", payload: wide, offload: true, status: checkpoint.Done})
		},
		replay: []string{"dropped of a: its job is done already"}, purge: []string{"dropped of a: its job is done already"},
	},
	"other work, by its message": {
		put: func(t *testing.T, b *rig) {
			b.giveUp(t, given{}, queue.Envelope{ID: "a", Kind: "other"}, b.lease(t))
			b.put(t, given{id: "a", gone: true})
		},
		byMessage: true,
		replay:    []string{"refused of a: open record of job a: the id was used for other work"},
		purge:     []string{"dropped of a: the record was not changed: open record of job a: the id was used for other work"},
	},
	"nested, a text in a blob": {
		put: func(t *testing.T, b *rig) {
			b.put(t, given{id: "a", payload: queue.BytesPayload([]byte(strings.Repeat("n", 20<<10)))})
			b.nest(t, 1)
			if b.payloads() != 1 {
				t.Fatalf("texts in blobs = %d, want the outer message's", b.payloads())
			}
		},
		replay: []string{"replayed of a: from scratch: there is no recorded state"}, purge: []string{"purged of a: 5 failures in a row"},
	},
	"nested deeply": {
		put:    func(t *testing.T, b *rig) { b.put(t, given{id: "a"}); b.nest(t, maxWrapped) },
		replay: []string{"replayed of a: from scratch: there is no recorded state"}, purge: []string{"purged of a: 5 failures in a row"},
	},
	"nested too deeply": {
		put:    func(t *testing.T, b *rig) { b.put(t, given{id: "a"}); b.nest(t, maxWrapped+1) },
		replay: []string{"replayed of a: as it was, although this version cannot read it: "}, purge: []string{"purged of a: "},
	},
}

// setVersion changes the version of a job's record.
func (b *rig) setVersion(t *testing.T, id, version string) {
	t.Helper()
	blob := b.stores.Account.Container(b.names.Records).NewBlobClient(pathOf(b, id))
	if _, err := blob.SetMetadata(t.Context(), map[string]*string{"v": &version, "status": new("done")}, nil); err != nil {
		t.Fatal(err)
	}
}

// TestOddMessages: each message has its outcome, a message that is gone leaves no blob, and each
// refused storage call is reported.
func TestOddMessages(t *testing.T) {
	for name, row := range odd {
		for command, want := range map[string][]string{"replay": row.replay, "purge": row.purge} {
			t.Run(name+", "+command, func(t *testing.T) {
				act := func(t *testing.T, b *rig) error {
					s := all
					if row.byMessage {
						s = Selection{Names: []string{b.server.Messages(b.names.Poison)[0].ID}}
					}
					b.DefaultKind = row.kind
					if command == "purge" {
						return b.Purge(t.Context(), s, b.report)
					}
					return b.Replay(t.Context(), s, false, b.report)
				}
				calls := 0
				inBubble(t, func(t *testing.T, b *rig) {
					row.put(t, b)
					if err := act(t, b); err != nil {
						t.Error(err)
					}
					calls = b.link.count()
					b.expectOutcomes(t, want)
				})
				for at := 1; at <= calls; at++ {
					inBubble(t, func(t *testing.T, b *rig) {
						row.put(t, b)
						what := b.refuseCall(at)
						if err := told(b, act(t, b)); err == nil && what() != "UpdateMessage" { // messages stay hidden for two minutes
							t.Errorf("call %d, %s: it was refused, and nothing is reported", at, what())
						}
					})
				}
			})
		}
	}
}

// refuseCall refuses one call, counted from now, and returns its operation.
func (b *rig) refuseCall(at int) (operation func() string) {
	var mu sync.Mutex // guards calls and what
	calls, what := 0, ""
	b.server.OnCall(func(c storage.Call) storage.Fault {
		mu.Lock()
		defer mu.Unlock()
		if calls++; calls != at {
			return storage.Fault{}
		}
		what = c.Operation
		return storage.Fault{Refuse: &storage.Error{Status: 403, Code: "AuthorizationPermissionMismatch"}}
	})
	return func() string {
		mu.Lock()
		defer mu.Unlock()
		return what
	}
}

// expectOutcomes compares what was told with action, job and the start of the detail.
func (b *rig) expectOutcomes(t *testing.T, want []string) {
	t.Helper()
	var got []string
	left, dropped := 0, false
	for i, o := range b.told {
		if !o.gone() {
			left++
		}
		dropped = dropped || o.Action == Dropped && strings.HasPrefix(o.Detail, "its job is done")
		text := fmt.Sprintf("%s of %s: %s", o.Action, o.Job, o.Detail)
		if i < len(want) && strings.HasPrefix(text, want[i]) {
			text = want[i]
		}
		got = append(got, text)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("outcomes (-want +got):\n%s", diff)
	}
	if n, visible := b.poisoned(); n != left || visible != left {
		t.Errorf("poison messages left = %d, visible %d, want %d", n, visible, left)
	}
	for _, blob := range b.server.Blobs(b.names.Payloads) {
		if left == 0 && (strings.HasPrefix(blob.Name, "poison/") || dropped) {
			t.Errorf("blob %s is left", blob.Name)
		}
	}
}

// told returns the first error that a replay or a purge reported.
func told(b *rig, err error) error {
	for _, o := range b.told {
		if o.Action == Failed && err == nil {
			err = fmt.Errorf("%s: %w", o.Detail, o.Err)
		}
	}
	return err
}
