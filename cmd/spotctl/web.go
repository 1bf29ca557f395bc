package main

import (
	"context"
	"errors"
	"fmt"
	"html"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"time"

	"github.com/spotworker/spotworker/cmd/spotctl/internal/costs"
	"github.com/spotworker/spotworker/internal/cli"
	"github.com/spotworker/spotworker/internal/storage/azure"
	"github.com/spotworker/spotworker/internal/web"
)

// webCommand serves the deployment as a page.
type webCommand struct {
	Listen     string        `help:"Address to serve at, on loopback without --read-only; port 0 is a free one." default:"127.0.0.1:0" env:"-"`
	Every      time.Duration `help:"Time between two reads while a page is open, at least 1s." default:"5s" env:"-"`
	Changes    bool          `name:"allow-changes" help:"Let the page put, cancel, replay, purge and requeue jobs, and steer workers." env:"-"`
	ReadOnly   bool          `help:"Serve it to a team, behind a proxy that signs people in." env:"-"`
	UserHeader string        `help:"The proxy's header with the name of the user." default:"X-Forwarded-User" placeholder:"NAME" env:"-"`
	costs.Rates
	Slots     int  `help:"Jobs that a VM does at a time, for prices. Default: by the heartbeats." placeholder:"N" env:"-"`
	NoBrowser bool `help:"Print the address, and open no browser." env:"-"`
}

// Help is shown by web --help.
func (*webCommand) Help() string {
	return `Serves a page with the state of the deployment, its jobs, workers, reasons of failures and costs,
and opens it in the browser. The page stays current until Ctrl-C. It changes nothing,
unless --allow-changes is given: then it has buttons, which ask before each change.

The page is for the user who started it: it is served on a loopback address, and the printed address
works once, in one browser. To see it on another machine, forward the same port with ssh -L.

With --read-only it is for a team: any address, no token, and never a button. Put a proxy before it that
signs people in and names them in --user-header, as oauth2-proxy or Azure's built-in authentication
(X-MS-CLIENT-PRINCIPAL-NAME) do. Requests without the header are refused. The proxy must be the only
one that reaches the address: anyone else who does can write any name.

With prices, as for cost, the page of costs shows money.

While a page is open, each read costs what status costs, once for all tabs; nothing is read while none
is. A job's page costs two calls more at each read while it is open, and up to five when its record
was written. If storage does not answer, the page says since when, and keeps what it had.`
}

// check returns what to change in the flags, or nil.
func (c *webCommand) check() error {
	switch {
	case c.Every < time.Second:
		return fmt.Errorf("--every is %s; it must be at least 1s", c.Every)
	case c.Slots < 0:
		return fmt.Errorf("--slots is %d; it must be positive", c.Slots)
	case c.ReadOnly && c.Changes:
		return errors.New("--read-only is for a team, which changes nothing: leave out --allow-changes")
	}
	return nil
}

func (c *webCommand) run(ctx context.Context, s *session) error {
	if err := c.check(); err != nil {
		return &cli.ConfigError{Err: err}
	}
	header := ""
	if c.ReadOnly {
		header = c.UserHeader
	}
	currency, price, err := c.Priced()
	if err != nil {
		return &cli.ConfigError{Err: err}
	}
	deployment, err := s.client()
	if err != nil {
		return err
	}
	server, err := web.Listen(web.Config{
		Title: s.title(), Version: version, Client: deployment, Explain: azure.Explain, Listen: c.Listen, Every: c.Every, UserHeader: header,
		AllowChanges: c.Changes, Control: s.flags.Names().Control, Price: price, Currency: currency, Slots: c.Slots,
	})
	if err != nil {
		return &cli.ConfigError{Err: fmt.Errorf("--listen: %w", err)}
	}
	switch {
	case s.printer.json:
		err = s.printer.line(map[string]string{"address": server.Address()})
	case c.ReadOnly:
		s.printer.note("the page is at this address for a proxy that sets %s, until Ctrl-C:", header)
		err = s.printer.lines([]string{server.Address()})
	default:
		s.printer.note("the page is at this address, which works once, until Ctrl-C:")
		err = s.printer.lines([]string{server.Address()})
	}
	if err != nil {
		return err
	}
	if !c.NoBrowser && !c.ReadOnly {
		done, err := browse(ctx, server.Address())
		if err != nil {
			s.printer.note("no browser was opened (%v): open the address yourself", err)
		}
		defer done()
	}
	return server.Serve(ctx)
}

// browse opens an address in the user's browser. It does not wait for it. Other users of the machine
// see a program's arguments, and the address has a token: the argument is a file that only this user
// can read and that leads to the address. done removes the file.
func browse(ctx context.Context, address string) (done func(), err error) {
	folder, err := os.MkdirTemp("", "spotctl-web-") // of mode 0700
	if err != nil {
		return func() {}, err
	}
	done = func() { _ = os.RemoveAll(folder) }
	file := filepath.Join(folder, "open.html")
	const page = "<!doctype html><meta charset=\"utf-8\"><meta http-equiv=\"refresh\" content=\"0;url=%s\"><title>spotworker</title>\n"
	if err := os.WriteFile(file, fmt.Appendf(nil, page, html.EscapeString(address)), 0o600); err != nil {
		return done, err
	}
	command := []string{"xdg-open", file}
	switch runtime.GOOS {
	case "darwin":
		command = []string{"open", file}
	case "windows":
		command = []string{"rundll32", "url.dll,FileProtocolHandler", file}
	}
	started := exec.CommandContext(context.WithoutCancel(ctx), command[0], command[1:]...) //nolint:gosec // one of three commands
	if err := started.Start(); err != nil {
		return done, err
	}
	go func() { _ = started.Wait() }()
	return done, nil
}
