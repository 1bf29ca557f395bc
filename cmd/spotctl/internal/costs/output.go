// Package costs has the commands of spotctl that concern money. prices and plan ask
// Azure's public and management services and never the storage account; cost reads the
// records in the storage account and asks no one for prices.
package costs

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/spotworker/spotworker/cmd/spotctl/internal/costs/prices"
	"github.com/spotworker/spotworker/internal/cli"
	"github.com/spotworker/spotworker/internal/storage/azure"
	"github.com/spotworker/spotworker/internal/text/plaintext"
)

// Output is where a command prints.
type Output struct {
	JSON  bool
	Width int // of the terminal in columns; 0 if there is none

	Lines func(lines []string) error       // text on standard output
	Line  func(object any) error           // a line of JSON on standard output
	Note  func(format string, args ...any) // a remark for people, on standard error
}

// Session is the context of a command.
type Session struct {
	Output
	None     func(what string) // notes that nothing is selected
	ClientID string            // of the managed identity to sign in with; empty for the developer's own
	Version  string
}

// Source are the flags that say what to ask the services, and where they are.
type Source struct {
	Region       []string      `help:"Regions, with commas between them." required:"" placeholder:"REGION" env:"-"`
	OS           string        `name:"os" help:"${about_os}" enum:"linux,windows" default:"linux" env:"-"`
	Currency     string        `help:"${about_currency}" default:"USD" env:"-"`
	Subscription string        `help:"${about_subscription}" env:"AZURE_SUBSCRIPTION_ID" placeholder:"ID"`
	Count        int           `help:"Number of VMs that placement scores are for." default:"1" env:"-"`
	SignIn       bool          `help:"${about_sign_in}" default:"true" negatable:"" env:"-"`
	Timeout      time.Duration `help:"Longest time to ask." default:"2m" env:"-"`

	PricesEndpoint     string `help:"Address of the Retail Prices API." default:"${prices_endpoint}" env:"-" placeholder:"URL"`
	ManagementEndpoint string `help:"Address of Azure's resource manager." default:"${management_endpoint}" env:"-" placeholder:"URL"`
}

// Vars are the variables in the tags of the flags.
func Vars() map[string]string {
	return map[string]string{"prices_endpoint": prices.RetailEndpoint, "management_endpoint": prices.ManagementEndpoint}
}

// gather asks the services about sizes.
func (f *Source) gather(ctx context.Context, s Session, sizes []string, zones bool) (prices.Query, prices.Report, error) {
	query, err := prices.Query{
		Sizes: sizes, Regions: f.Region, Windows: f.OS == "windows", Currency: f.Currency,
		Subscription: f.Subscription, Count: f.Count, Zones: zones,
	}.Normalize()
	if err == nil && f.Timeout <= 0 {
		err = fmt.Errorf("--timeout %s: give a positive time", f.Timeout)
	}
	options := prices.Options{RetailEndpoint: f.PricesEndpoint, ManagementEndpoint: f.ManagementEndpoint, Version: s.Version}
	if err == nil && f.SignIn {
		options.Credential, err = azure.SignIn(s.ClientID)
	}
	if err != nil {
		return query, prices.Report{}, &cli.ConfigError{Err: err}
	}
	client, err := prices.New(options)
	if err != nil {
		return query, prices.Report{}, &cli.ConfigError{Err: err}
	}
	ctx, cancel := context.WithTimeout(ctx, f.Timeout)
	defer cancel()
	report, err := prices.Gather(ctx, client, query, time.Now())
	return query, report, err
}

// gaps prints the gaps of a report: lines of JSON, or remarks for people.
func gaps(s Session, found []prices.Gap) error {
	for _, g := range found {
		if !s.JSON {
			s.Note("%s", plaintext.Line(g.String()))
			continue
		}
		if err := s.Line(gapLine{g}); err != nil {
			return err
		}
	}
	return nil
}

// gapLine is a gap, in the JSON output.
type gapLine struct {
	Gap prices.Gap `json:"gap"`
}

// percent writes a share.
func percent(share float64) string { return fmt.Sprintf("%.0f %%", 100*share) }

// sentence joins remarks.
func sentence(parts []string) string { return strings.Join(parts, "; ") }
