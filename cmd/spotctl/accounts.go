package main

import (
	"context"
	"fmt"
	"strings"

	"github.com/spotworker/spotworker/internal/cli"
	"github.com/spotworker/spotworker/internal/operate"
	"github.com/spotworker/spotworker/internal/queue"
	"github.com/spotworker/spotworker/internal/text/plaintext"
)

// accountsCommand shows or sets over which storage accounts the jobs are spread.
type accountsCommand struct {
	Number    int  `arg:"" optional:"" help:"${about_accounts_number}"`
	ChosenIDs bool `name:"chosen-ids" help:"${about_accounts_chosen_ids}" env:"-"`
}

// Help is shown by accounts --help.
func (*accountsCommand) Help() string {
	return `One storage account lets about 20,000 calls a second through, which some 6,000 short jobs a
second use up. More take more accounts. All programs are given the same list: --account is the
first, which also has heartbeats and what operators ask, and --more-account each further one, in the
same order. Over how many of them jobs are spread is in the metadata of the first queue of the first
account. Producers read it each minute. Workers take jobs from all accounts that they were given.

First run this command with 1, then set the list on all workers, run this command with the number,
and set the list on producers. It creates the queues and containers that are missing. Accounts can
be added and not reordered. From a deployment without jobs, messages and records they can be
removed. Programs that were given several accounts refuse chosen ids while none is recorded.

All of a job is in one account, which a hash of its id chooses. A new random id may go to any
account. A chosen id must meet its record when it is put again, and so stays on the accounts that
there were when the first jobs were put: adding an account spreads it too only if the deployment has
no job, no message and no record, or with --chosen-ids. Let no producer put chosen ids while you do
that and for 75 s after it, since one that has not read the change puts them where they were.

To change it takes Storage Queue Data Contributor and Storage Blob Data Contributor on all accounts.
Exit codes: 0 done, 1 not done, 78 wrong flags.`
}

// accountLine is a storage account, in the JSON output.
type accountLine struct {
	Name      string `json:"name"`
	Given     bool   `json:"given"`      // to this program
	NewIDs    bool   `json:"new_ids"`    // jobs with new ids are put there
	ChosenIDs bool   `json:"chosen_ids"` // jobs with chosen ids are put there
}

func (c *accountsCommand) run(ctx context.Context, s *session) error {
	if c.Number < 0 || c.Number > queue.MaxAccounts {
		return &cli.ConfigError{Err: fmt.Errorf("%d accounts are out of range: give 1 to %d", c.Number, queue.MaxAccounts)}
	}
	if c.Number > 0 {
		return c.spread(ctx, s)
	}
	deployment, err := s.client()
	if err != nil {
		return err
	}
	a, err := deployment.Accounts(ctx)
	if err != nil {
		return err
	}
	spread := a.Spread
	if len(spread) == 0 {
		spread = a.Names[:1]
	}
	var lines []accountLine
	for i := range max(len(spread), len(a.Names)) {
		l := accountLine{NewIDs: i < len(spread), ChosenIDs: i < min(a.ForIDs, len(spread)), Given: i < len(a.Names)}
		if l.Given {
			l.Name = a.Names[i]
		}
		if l.NewIDs {
			l.Name = spread[i]
		}
		lines = append(lines, l)
	}
	if err := s.printer.accounts(lines); err != nil {
		return err
	}
	return a.Problem
}

// accounts prints accounts.
func (p *printer) accounts(lines []accountLine) error {
	if p.json {
		for _, l := range lines {
			if err := p.line(l); err != nil {
				return err
			}
		}
		return nil
	}
	word := map[bool]string{true: "yes", false: "no"}
	t := p.table()
	fmt.Fprintf(t, "ACCOUNT\tGIVEN\tNEW IDS ARE PUT\tCHOSEN IDS ARE PUT\n")
	for _, l := range lines {
		fmt.Fprintf(t, "%s\t%s\t%s\t%s\n", plaintext.Line(l.Name), word[l.Given], word[l.NewIDs], word[l.ChosenIDs])
	}
	return t.Flush()
}

// spread spreads the jobs over accounts.
func (c *accountsCommand) spread(ctx context.Context, s *session) error {
	stores, err := s.flags.Open(parallelCalls, version)
	if err != nil {
		return err
	}
	if c.Number > len(stores.Accounts) {
		return &cli.ConfigError{Err: fmt.Errorf("jobs cannot be spread over %d accounts: %d were given; give the first with --account and "+
			"each further one with --more-account", c.Number, len(stores.Accounts))}
	}
	done, err := operate.SpreadOver(ctx, stores, c.Number, c.ChosenIDs)
	if err != nil {
		return err
	}
	s.printer.note("jobs with new ids are put in %d of the accounts, and jobs with chosen ids in %d: %s; producers that run follow "+
		"within 75 s", done.Accounts(), done.IDs, strings.Join(done.Names, ", "))
	if done.IDs < done.Accounts() {
		s.printer.note("chosen ids stay where they are, since the deployment has jobs or their records; --chosen-ids spreads them too, and an " +
			"id that was put before may then run a second time if it is put again")
	}
	return nil
}
