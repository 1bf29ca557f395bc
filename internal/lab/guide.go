package lab

import (
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
)

// producerVM is where the producer gets its tokens from. It is not in the scale
// set and is never evicted.
const producerVM = "producer"

// connectionStringVariable names the variable that comes before an identity.
const connectionStringVariable = "AZURE_STORAGE_CONNECTION_STRING"

// guide is what people paste into other terminals.
type guide struct {
	account  []string                 // variables that lead to the storage account
	identity bool                     // they count only where no connection string is set
	tokens   func(vm string) []string // variables that lead to a VM's tokens
	base     func(vm string) string   // of a VM's metadata service
	port     string                   // flag of lab evict, empty for the default
	az       string                   // the script that leads the Azure CLI here; empty where none runs
	evict    func(vm string) string   // what that is told to evict a VM
	queue    string                   // for jobs
	sample   string                   // a blob to hash; empty without any
	listen   func(vm string) string   // where a VM's worker serves health and metrics
}

func (u *up) newGuide() (guide, error) {
	g := guide{
		tokens: u.local.tokenEnvironment, base: u.local.Endpoint, listen: listenAddress,
		evict: u.local.evictArguments, queue: u.names.Queue, sample: u.sample,
	}
	if u.MetadataPort != DefaultMetadataPort {
		g.listen = func(string) string { return loopback(0) } // another lab up may have the usual ones
		_, port, _ := strings.Cut(strings.TrimPrefix(u.local.base, "http://"), ":")
		g.port = " --metadata-port " + port
	}
	authority, err := u.local.writeAuthority(u.folder)
	if err != nil {
		return g, err
	}
	if u.local.Identity == nil {
		g.account = []string{connectionStringVariable + "=" + u.local.ConnectionString}
	} else {
		g.account, g.identity = u.local.Identity.environment(authority), true
	}
	g.az, err = u.writeAzureCLI(authority)
	return g, err
}

// write prints everything, for those VMs.
func (g guide) write(out io.Writer, vms []string) {
	var b strings.Builder
	b.WriteString("\nA local Azure is up on 127.0.0.1, until Ctrl-C. Nothing leaves this machine.\n")
	b.WriteString("make build makes the programs. First, in every terminal:\n\n")
	if g.identity {
		b.WriteString("    unset " + connectionStringVariable + "\n")
	}
	export(&b, g.account)
	b.WriteString("\nIn one for the producer:\n\n")
	export(&b, g.tokens(producerVM))
	if g.sample != "" {
		fmt.Fprintf(&b, "    bin/producer digests --container %s\n", inputContainer)
	} else {
		b.WriteString("    bin/producer put --kind KIND --payload JSON\n")
	}
	b.WriteString("\nIn one for each worker, which stands for a VM:\n")
	for _, vm := range vms {
		g.writeWorker(&b, vm)
	}
	fmt.Fprintf(&b, "\nEvict a VM with 30 s of notice, and change your mind:\n\n    bin/lab evict%s %s\n    bin/lab withdraw%s %s\n\n",
		g.port, vms[0], g.port, vms[0])
	if g.az != "" {
		g.writeAzureCLI(&b, vms[0])
	}
	fmt.Fprint(out, b.String())
}

// writeAzureCLI prints what the Azure CLI can do here. Storage accepts it with a
// key only: in the profile of that cloud, az cannot be told where storage is
// that takes tokens.
func (g guide) writeAzureCLI(b *strings.Builder, vm string) {
	fmt.Fprintf(b, "Or with the Azure CLI, as on Azure, but some seconds after the call:\n\n    %s %s\n\n", quote(g.az), g.evict(vm))
	if g.identity || g.sample == "" {
		return
	}
	fmt.Fprintf(b, "It can also put a message that knows nothing of envelopes:\n\n    %s storage message put --queue-name %s --time-to-live -1 --content %s\n\n",
		quote(g.az), g.queue, quote(fmt.Sprintf(`{"container":%q,"blob":%q}`, inputContainer, g.sample)))
}

// writeWorker prints what starts a worker on a VM, in a terminal that has the
// account's variables.
func (g guide) writeWorker(out io.Writer, vm string) {
	var b strings.Builder
	b.WriteString("\n")
	export(&b, slices.Concat(g.tokens(vm), []string{"SPOTWORKER_METADATA_ENDPOINT=" + g.base(vm)}))
	b.WriteString("    bin/worker --data-container " + inputContainer + " --default-kind digest --listen " + g.listen(vm) + "\n")
	fmt.Fprint(out, b.String())
}

// listenAddress is where the worker of a VM serves health and metrics. On a
// machine with many workers, which all take themselves for the only one of their
// VM, each needs a port of its own: that of the VM with number 1 is 8811.
func listenAddress(vm string) string {
	n, err := strconv.Atoi(strings.TrimPrefix(vm, scaleSet+"_"))
	if err != nil {
		return loopback(0)
	}
	return loopback(workerPort + n)
}

// workerPort is the port of a worker's health and metrics where a VM has one
// worker.
const workerPort = 8810

// export prints shell commands that set variables.
func export(b *strings.Builder, variables []string) {
	for _, variable := range variables {
		name, value, _ := strings.Cut(variable, "=")
		fmt.Fprintf(b, "    export %s=%s\n", name, quote(value))
	}
}

// quote writes a value so that a shell takes it as it stands.
func quote(value string) string {
	if strings.ContainsFunc(value, func(c rune) bool { return !plainInShell(c) }) {
		return "'" + strings.ReplaceAll(value, "'", `'\''`) + "'"
	}
	return value
}

func plainInShell(c rune) bool {
	return 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9' || strings.ContainsRune("_./:-,@%+", c)
}
