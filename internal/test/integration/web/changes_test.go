//go:build integration

package web_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/container"
	"github.com/chromedp/chromedp"

	"github.com/spotworker/spotworker/client"
	"github.com/spotworker/spotworker/client/clienttest"
	"github.com/spotworker/spotworker/internal/fleet/presence"
	"github.com/spotworker/spotworker/internal/lab/emulator/storage"
	"github.com/spotworker/spotworker/internal/overview"
	"github.com/spotworker/spotworker/internal/test/proof"
	"github.com/spotworker/spotworker/internal/web"
	"github.com/spotworker/spotworker/job"
)

// changing serves a deployment in memory with a job that runs and one that was given up, and lets
// the page change it.
func changing(t *testing.T) (c *client.Client, base, address string) {
	t.Helper()
	c = clienttest.New(t, job.Kinds{
		"train": job.HandlerFunc(func(ctx context.Context, j *job.Job) ([]byte, error) {
			job.Logger(ctx).InfoContext(ctx, "epoch 31 of 80")
			j.Report(job.Progress{Fraction: 0.39, Text: "epoch 31 of 80"})
			<-ctx.Done()
			return nil, context.Cause(ctx)
		}),
		"render": job.HandlerFunc(func(context.Context, *job.Job) ([]byte, error) {
			return nil, job.Permanent(errors.New("exit status 1: open /data/frames/0042.exr: no such file"))
		}),
	})
	for id, kind := range map[string]string{"epoch-run-000007": "train", "alps-frame-0042": "render", "alps-frame-0043": "render"} {
		if _, err := c.Put(t.Context(), client.Spec{ID: id, Kind: kind}); err != nil {
			t.Fatal(err)
		}
	}
	await(t, c, "epoch-run-000007", client.StatusRunning)
	await(t, c, "alps-frame-0042", client.StatusPoison)
	await(t, c, "alps-frame-0043", client.StatusPoison)
	address = listen(t, web.Config{Client: c, AllowChanges: true, Every: time.Second,
		Read: func(ctx context.Context, each func(client.Job), early func(overview.Snapshot)) (overview.Snapshot, error) {
			return overview.ReadEach(ctx, c, each, early)
		}})
	return c, address[:strings.Index(address, "/?")], address
}

func await(t *testing.T, c *client.Client, id string, status client.Status) {
	t.Helper()
	deadline := time.Now().Add(2 * time.Minute)
	for {
		j, err := c.Get(t.Context(), id)
		messages, _, _ := c.PeekPoison(t.Context()) // which has the message after the record is written
		poison := slices.ContainsFunc(messages, func(m client.PoisonMessage) bool { return m.JobID == id })
		if err == nil && j.Status == status && (status != client.StatusPoison || poison) {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("job %s is %s (%v), want %s", id, j.Status, err, status)
		}
		time.Sleep(20 * time.Millisecond)
	}
}

// press clicks the first element with a text.
func (b *browser) press(selector, text string) {
	b.t.Helper()
	find := `[...document.querySelectorAll(` + "`" + selector + "`" + `)].find((e) => e.textContent.includes(` + "`" + text + "`" + `))`
	b.eventually(`!!` + find)
	script[bool](b, find+`.click(), true`)
}

// TestChanges: the buttons of each page ask in a dialog, which the keyboard can leave, and the
// outcome is shown. It works without the script too.
func TestChanges(t *testing.T) {
	proof.Only(t, "TestScreens is the quick pass over all pages")
	c, base, address := changing(t)
	b := open(t)
	b.look(screens[0])
	b.visit(address, ".tiles")
	b.said()
	at := func(path string) {
		t.Helper()
		b.visit(base+path, "main")
		b.eventually(`document.readyState === "complete"`)
	}
	at("/job/epoch-run-000007")
	b.press("a.button", "Cancel…")
	b.eventually(`document.querySelector("dialog[open] h1")?.textContent === "Cancel job epoch-run-000007? This cannot be undone."`)
	if !script[bool](b, `document.querySelector("dialog").contains(document.activeElement)`) {
		t.Error("the dialog has not the focus")
	}
	for _, s := range screens {
		b.look(s)
		b.sound("dialog on " + s.name)
		b.shoot("change-dialog-" + s.name)
	}
	b.look(screens[0])
	b.do("press a key", chromedp.KeyEvent("\x1b"))
	b.eventually(`!document.querySelector("dialog")`)
	if !script[bool](b, `document.activeElement.textContent.includes("Cancel…")`) {
		t.Error("after the dialog the focus is elsewhere")
	}
	b.press("a.button", "Cancel…")
	b.press("dialog button", "Cancel the job")
	b.eventually(`location.pathname.startsWith("/changed/") && document.body?.textContent.includes("1 cancelled")`)
	b.shoot("change-made-desktop")
	b.sound("outcome")
	await(t, c, "epoch-run-000007", client.StatusCancelled)
	at("/job/epoch-run-000007")
	b.press("a.button", "Run again…")
	b.press("dialog button", "Run job epoch-run-000007 again")
	b.eventually(`location.pathname.startsWith("/changed/") && document.body?.textContent.includes("1 replayed")`)

	at("/jobs?sort=id")
	script[bool](b, `document.querySelectorAll("[name=pick]").forEach((box) => box.value.startsWith("alps") && box.click()), true`)
	b.eventually(`document.querySelector("#picks output").textContent === "2 selected"`)
	for _, s := range screens {
		b.look(s)
		b.shoot("change-selected-" + s.name)
		b.sound("selected rows on " + s.name)
	}
	b.look(screens[0])
	b.press("#picks button", "Replay…")
	b.eventually(`document.querySelector("dialog[open] h1")?.textContent === "Replay 2 jobs?"`)
	b.press("dialog button", "Replay 2 jobs")
	b.eventually(`location.pathname.startsWith("/changed/") && document.body?.textContent.includes("2 replayed")`)
	await(t, c, "alps-frame-0042", client.StatusPoison)
	await(t, c, "alps-frame-0043", client.StatusPoison)

	at("/poison")
	b.press("a.button", "Replay 2…")
	b.press("dialog button", "Replay 2 jobs")
	b.eventually(`document.body?.textContent.includes("2 replayed")`)

	at("/workers")
	b.press("a.button", "Drain all…")
	b.press("dialog button", "Drain")
	b.eventually(`location.pathname.startsWith("/changed/") && document.body?.textContent.includes("drain: running workers asked")`)
	at("/workers")
	b.eventually(`document.querySelector("#steer")?.textContent.includes("All workers are drained")`)
	for _, s := range screens {
		b.look(s)
		b.shoot("change-workers-" + s.name)
		b.sound("workers on " + s.name)
	}
	b.look(screens[0])
	b.press("a.button", "Resume…")
	b.press("dialog button", "Resume")
	b.eventually(`document.body?.textContent.includes("resume: running workers asked")`)

	at("/put")
	b.sound("the form of a job")
	script[bool](b, `document.querySelector("form.put [name=kind]").value = "render",
		document.querySelector("form.put [name=id]").value = "new-one",
		document.querySelector("form.put [name=payload]").value = "{", document.querySelector("form.put").requestSubmit(), true`)
	b.eventually(`!!document.querySelector("[role=alert]") && document.querySelector("form.put [name=id]").value === "new-one"`)
	b.shoot("change-put-desktop")
	script[bool](b, `document.querySelector("form.put [name=payload]").value = "{}", document.querySelector("form.put").requestSubmit(), true`)
	b.eventually(`location.pathname.startsWith("/changed/") && document.body?.textContent.includes("enqueued")`)
	await(t, c, "new-one", client.StatusPoison)
	at("/job/new-one")
	b.press("a.button", "Purge…")
	b.press("dialog button", "Purge job new-one")
	b.eventually(`document.body?.textContent.includes("1 purged")`)
	at("/job/new-one")
	b.eventually(`document.querySelector("button:disabled")?.textContent === "Run again…"`)
	b.sound("a job that cannot run again")
	b.shoot("change-off-desktop")

	at("/change?do=pause")
	b.sound("question")
	b.shoot("change-page-desktop")
	b.press("main button", "Pause")
	b.eventually(`document.body?.textContent.includes("pause: running workers asked")`)
	if s, err := c.Steering(t.Context()); err != nil || s.Paused == nil {
		t.Errorf("Steering = %+v, %v, want paused", s, err)
	}
	if said := b.said(); said != "" && !strings.Contains(said, "422") {
		t.Errorf("the console has %s", said)
	}
}

// TestQuarantine: the page quarantines a VM, and frees it.
func TestQuarantine(t *testing.T) {
	proof.Only(t, "TestScreens is the quick pass over all pages")
	c, connection := emulated(t)
	workers, err := container.NewClientFromConnectionString(connection, "spotworker-workers", nil)
	if err == nil {
		err = presence.NewStore(workers).Write(t.Context(), presence.Presence{
			Worker: "spot_1-3f9c01aa-0", Machine: presence.Machine{VM: "spot_1"},
			State: "process", StartedAt: time.Now(), At: time.Now(), Steered: true})
	}
	if err != nil {
		t.Fatal(err)
	}
	address := listen(t, web.Config{Client: c, AllowChanges: true, Every: time.Second})
	base := address[:strings.Index(address, "/?")]
	b := open(t)
	b.look(screens[0])
	b.visit(address, ".tiles")
	for _, change := range []struct {
		button, outcome string
		quarantined     int
	}{
		{"Quarantine", "quarantine: running workers asked", 1}, {"Free", "free: running workers asked", 0},
	} {
		b.visit(base+"/workers", "#vms")
		b.press("a.button", change.button+"…")
		b.eventually(`!!document.querySelector("dialog[open]")`)
		b.sound("the question: " + change.button)
		b.press("dialog button", change.button)
		b.eventually(`location.pathname.startsWith("/changed/") && document.body?.textContent.includes("` + change.outcome + `")`)
		b.sound("the outcome: " + change.button)
		b.shoot("change-" + change.button + "-desktop")
		s, err := c.Steering(t.Context())
		if err != nil || len(s.Quarantined) != change.quarantined {
			t.Fatalf("%s: Steering = %+v, %v, want %d VMs in quarantine", change.button, s, err, change.quarantined)
		}
	}
	if said := b.said(); said != "" {
		t.Errorf("the console has %s", said)
	}
}

// emulated makes a deployment on an emulator, which spotctl can read too.
func emulated(t *testing.T) (c *client.Client, connection string) {
	t.Helper()
	server := storage.New(storage.Options{})
	t.Cleanup(func() { _ = server.Close() })
	connection, err := server.Listen(storage.Addresses{Blob: "127.0.0.1:0", Queue: "127.0.0.1:0"})
	if err != nil {
		t.Fatal(err)
	}
	c, err = client.Open(client.Options{ConnectionString: connection})
	if err == nil {
		err = c.Create(t.Context())
	}
	if err != nil {
		t.Fatal(err)
	}
	return c, connection
}
