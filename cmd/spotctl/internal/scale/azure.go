package scale

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os/exec"
	"strconv"
	"strings"
)

// Target is a scale set or a compute fleet in Azure.
type Target struct {
	Group, Name string
	Fleet       bool
}

const (
	fleetType    = "Microsoft.AzureFleet/fleets"
	fleetVersion = "2024-11-01"
	fleetVMs     = "properties.spotPriorityProfile.capacity"
)

// VMs asks Azure for the number of VMs.
func (t Target) VMs(ctx context.Context) (int, error) {
	command := []string{"vmss", "show", "--query", "sku.capacity"}
	if t.Fleet {
		command = []string{"resource", "show", "--resource-type", fleetType, "--api-version", fleetVersion, "--query", fleetVMs}
	}
	said, err := t.az(ctx, append(command, "--output", "tsv")...)
	if err != nil {
		return 0, err
	}
	n, err := strconv.Atoi(said)
	if err != nil {
		return 0, fmt.Errorf("az %s says %q, want the number of VMs of %s", command[0], said, t.Name)
	}
	return n, nil
}

// Commands returns how the number of VMs is changed. A scale set loses idle VMs by name, since
// Azure would choose among all; whose VMs a fleet loses, Azure decides.
func (t Target) Commands(f Facts, vms int) [][]string {
	switch {
	case vms == f.VMs:
		return nil
	case t.Fleet:
		return [][]string{t.in("resource", "update", "--resource-type", fleetType, "--api-version", fleetVersion,
			"--set", fmt.Sprintf("%s=%d", fleetVMs, vms), "--output", "none")}
	case vms > f.VMs:
		return [][]string{t.in("vmss", "scale", "--new-capacity", strconv.Itoa(vms), "--output", "none")}
	default:
		return [][]string{append(t.in("vmss", "delete-instances", "--output", "none", "--instance-ids"), f.Idle[:f.VMs-vms]...)}
	}
}

// Run runs a command of the Azure CLI.
func Run(ctx context.Context, command []string) (string, error) {
	var out, errOut bytes.Buffer
	c := exec.CommandContext(ctx, "az", command...) //nolint:gosec // commands of this package
	c.Stdout, c.Stderr = &out, &errOut
	err := c.Run()
	switch {
	case errors.Is(err, exec.ErrNotFound):
		return "", errors.New("az is missing, which asks Azure and changes the number of VMs: install the Azure CLI, and run az login")
	case err != nil:
		return "", fmt.Errorf("az %s failed, nothing more is changed; the next run tries again: %w: %s", strings.Join(command[:2], " "), err,
			bytes.TrimSpace(errOut.Bytes()))
	}
	return strings.TrimSpace(out.String()), nil
}

func (t Target) az(ctx context.Context, command ...string) (string, error) {
	return Run(ctx, t.in(command...))
}

// in adds the resource to a command, behind its first two words.
func (t Target) in(command ...string) []string {
	return append([]string{command[0], command[1], "--resource-group", t.Group, "--name", t.Name}, command[2:]...)
}
