package azurecli

import (
	"iter"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/spotworker/spotworker/internal/test/repository"
)

// documentedCommand is a command line of README or docs that uses az or make.
type documentedCommand struct {
	document string
	line     int
	name     string // az or make with the words before the first option, such as "az vm list"
	text     string // the whole line
}

// Why a command does not run in the tests of this package.
const (
	keepsNothing = "the local resource manager keeps no resources but VMs"
	needsAzure   = "it asks Azure for what has no counterpart here: sizes, quota, people, logs"
	needsGuest   = "an emulated VM has no guest to run a command in"
	onItsOwn     = "it is a target that CI runs, or a tool for developers, and calls no az"
	printed      = "TestAzureCLI pastes the commands that lab up prints, this one among them"
	ownSignIn    = "lab up's script signs in"
	elsewhere    = "it changes this machine's installation of az"
	onlyNamed    = "the document only names it, without its options"
)

// reasons says why commands whose names begin so do not run here.
var reasons = map[string]string{
	"az bicep": elsewhere, "az deployment": keepsNothing, "az group": keepsNothing, "az login": ownSignIn,
	"az monitor": needsAzure, "az provider": needsAzure, "az resource": keepsNothing, "az sig": keepsNothing,
	"az vm delete": keepsNothing, "az vm redeploy": keepsNothing,
	"az vm run-command": needsGuest,
	"az vm start":       onlyNamed, "az vmss delete": keepsNothing, "az vmss show": keepsNothing,
	"az vmss set-orchestration-service-state": keepsNothing,
	"az vmss simulate-eviction":               printed,

	"make bench": onItsOwn, "make bicep": onItsOwn, "make build": onItsOwn, "make chaos": onItsOwn,
	"make demo": onItsOwn, "make figures": onItsOwn, "make image": onItsOwn, "make integration": onItsOwn,
	"make mutants": onItsOwn, "make package": onItsOwn, "make nightly": onItsOwn, "make race": onItsOwn, "make nightly-names": onItsOwn,
	"make nightly-proof": onItsOwn, "make nightly-race": onItsOwn,
	"make release-snapshot": onItsOwn,
	"make soak":             onItsOwn, "make test": onItsOwn, "make deploy": "without --dry-run " + keepsNothing,
	"make rehome": "without --dry-run " + keepsNothing,
}

// runnable are the names of the commands that TestDocumentedCommandsRun runs, unless a
// reason has more of the command's words, with a pattern that the output of each matches.
var runnable = map[string]string{
	"az account set":                     `^$`,
	"az storage blob list":               ``,
	"az storage blob upload-batch":       `deploy\.md`,
	"az storage message put":             `"id"`,
	"az vm get-instance-view":            `^$`, // an emulated VM has no health extension
	"az vm list":                         ``,
	"az vm show":                         `^$`, // nor an identity here
	"az vm simulate-eviction":            `^$`,
	"make deploy DEPLOY_FLAGS=--dry-run": `az deployment group create`,
	"make rehome REHOME_FLAGS=--dry-run": `az vmss scale`,
	"make evict":                         `\$ az vm simulate-eviction --resource-group spotworker --name spotworker-spot_`,
}

// fits returns the longest of names that a command begins with, in whole words.
func (c documentedCommand) fits(names iter.Seq[string]) (longest string) {
	for name := range names {
		if (c.name == name || strings.HasPrefix(c.name, name+" ")) && len(name) > len(longest) {
			longest = name
		}
	}
	return longest
}

// runs reports whether the command is run, or returns why not. Both are empty for a
// command that is neither.
func (c documentedCommand) runs() (run string, reason string) {
	run, why := c.fits(maps.Keys(runnable)), c.fits(maps.Keys(reasons))
	if len(why) >= len(run) {
		return "", reasons[why]
	}
	return run, ""
}

var (
	// commandStart finds az and make where a command begins: at the beginning, in $( ),
	// behind variables, after a keyword or separator, and az in a folder.
	commandStart = regexp.MustCompile(`(?:^|\$\(|[;|&(]|\bdo)\s*((?:[A-Z_]+=\S* +)*)(?:/\S+/)?(az|make)` +
		`((?: +[a-z][a-z-]*)*)((?: +[A-Z_]+=\S+)*)`)

	inline = regexp.MustCompile("`([^`]+)`")
)

// documentedCommands returns the commands of README and docs.
func documentedCommands(t *testing.T) (found []documentedCommand) {
	t.Helper()
	root := repository.Root(t)
	documents, err := filepath.Glob(filepath.Join(root, "docs", "*.md"))
	if err != nil || len(documents) == 0 {
		t.Fatalf("documents = %v, %v", documents, err)
	}
	for _, document := range append(documents, filepath.Join(root, "README.md")) {
		text, err := os.ReadFile(document)
		if err != nil {
			t.Fatal(err)
		}
		found = append(found, commandsOf(filepath.Base(document), string(text))...)
	}
	return found
}

func commandsOf(document, text string) (found []documentedCommand) {
	add := func(line int, command string) {
		for _, match := range commandStart.FindAllStringSubmatch(command, -1) {
			name := match[2] + strings.Join(append([]string{""}, strings.Fields(match[3])...), " ")
			if match[2] == "make" {
				name += strings.Join(append([]string{""}, strings.Fields(match[4])...), " ")
			}
			if name != match[2] && command != "az vm" && command != "az vmss" {
				found = append(found, documentedCommand{document, line, name, command})
			}
		}
	}
	fenced, joined, begin := false, "", 0
	for n, line := range strings.Split(text, "\n") {
		switch {
		case strings.HasPrefix(strings.TrimSpace(line), "```"):
			fenced = !fenced
		case !fenced:
			for _, span := range inline.FindAllStringSubmatch(line, -1) {
				add(n+1, strings.ReplaceAll(span[1], `\|`, "|"))
			}
		default:
			if joined == "" {
				begin = n + 1
			}
			more, continues := strings.CutSuffix(line, `\`)
			if joined != "" {
				more = strings.TrimLeft(more, " ")
			}
			joined += more
			if !continues {
				add(begin, strings.TrimSpace(strings.Split(joined, " # ")[0]))
				joined = ""
			}
		}
	}
	return found
}

// TestDocumentedCommands: each command of README and docs that uses az or make runs
// against the local resource manager in TestDocumentedCommandsRun, or a reason says why it does not. No
// entry of either list is left over.
func TestDocumentedCommands(t *testing.T) {
	used := map[string]bool{}
	for _, c := range documentedCommands(t) {
		run, reason := c.runs()
		if run == "" && reason == "" {
			t.Errorf("%s:%d: %q is neither run nor has it a reason: %s", c.document, c.line, c.name, c.text)
		}
		if reason == onlyNamed && strings.Contains(c.text, " -") {
			t.Errorf("%s:%d: %s is more than a name; run it, or give another reason", c.document, c.line, c.text)
		}
		used[run], used[c.fits(maps.Keys(reasons))] = true, true
	}
	for _, name := range slices.AppendSeq(slices.Collect(maps.Keys(reasons)), maps.Keys(runnable)) {
		if !used[name] {
			t.Errorf("no document has a command %q", name)
		}
	}
}
