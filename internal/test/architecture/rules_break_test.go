package architecture

import (
	"fmt"
	"strings"
	"testing"
	"testing/fstest"
)

const testModule = "example.org/m"

// tree returns a module with the given files: path, then content.
func tree(pathsAndTexts ...string) fstest.MapFS {
	fsys := fstest.MapFS{"go.mod": {Data: []byte("module " + testModule + "\n\ngo 1.26\n")}}
	for i := 0; i < len(pathsAndTexts); i += 2 {
		fsys[pathsAndTexts[i]] = &fstest.MapFile{Data: []byte(pathsAndTexts[i+1])}
	}
	return fsys
}

// importing returns a file with one import, on line 3.
func importing(imported string) string {
	return "package p\n\nimport _ \"" + imported + "\"\n"
}

const azidentityPath = "github.com/Azure/azure-sdk-for-go/sdk/azidentity"

// breaches are small files that break a rule each.
var breaches = []struct {
	rule string
	path string
	text string
	line int
}{
	{"job stands alone", "job/job.go", importing(testModule + "/internal/jobid"), 3},
	{"job stands alone", "job/jobtest/evict.go", importing("github.com/Azure/azure-sdk-for-go/sdk/azcore"), 3},
	{"jobid stands alone", "internal/jobid/id.go", importing(testModule + "/job"), 3},
	{"retry stands alone", "internal/retry/retry.go", importing(testModule + "/internal/queue"), 3},
	{"deadline stands alone", "internal/delivery/deadline/judge.go", importing(testModule + "/internal/checkpoint"), 3},
	{"plaintext stands alone", "internal/text/plaintext/plaintext.go", importing(testModule + "/internal/cli"), 3},
	{"durations stands alone", "internal/text/durations/durations.go", importing(testModule + "/internal/cli"), 3},
	{"jsonpos stands alone", "internal/text/jsonpos/jsonpos.go", importing(testModule + "/internal/program"), 3},
	{"tokenproxy knows the monitor's limit alone", "internal/program/tokenproxy/tokenproxy.go",
		importing(testModule + "/internal/storage/azure"), 3},
	{"snapshot knows processes alone", "internal/program/snapshot/meta.go", importing(testModule + "/internal/program/archive"), 3},
	{"sandbox stands alone", "internal/host/sandbox/users.go", importing(testModule + "/internal/program"), 3},
	{"lifecycle stands alone", "internal/lifecycle/machine.go", importing(testModule + "/internal/preempt"), 3},
	{"health stands alone", "internal/telemetry/health/loops.go", importing(testModule + "/internal/lifecycle"), 3},
	{"activity stands alone", "internal/fleet/activity/slots.go", importing(testModule + "/internal/fleet/presence"), 3},
	{"metrics stands alone", "internal/telemetry/metrics/jobs.go", importing(testModule + "/internal/worker"), 3},
	{"Prometheus is in one place", "internal/queue/queue.go", importing("github.com/prometheus/client_golang/prometheus"), 3},
	{"the SDK for traces is in one place", "internal/queue/queue.go", importing("go.opentelemetry.io/otel/sdk/trace"), 3},
	{"tracing stands alone", "internal/telemetry/tracing/tracing.go", importing(testModule + "/internal/queue"), 3},
	{"monitor knows health alone", "internal/telemetry/monitor/server.go", importing(testModule + "/internal/telemetry/metrics"), 3},
	{"hook knows printable text alone", "internal/telemetry/hook/hook.go", importing(testModule + "/internal/telemetry/health"), 3},
	{"systemd stands alone", "internal/telemetry/systemd/notifier.go", importing(testModule + "/internal/telemetry/health"), 3},
	{"winservice stands alone", "internal/windows/winservice/run.go", importing(testModule + "/internal/worker"), 3},
	{"winsetup knows the service alone", "internal/windows/winsetup/check.go", importing(testModule + "/internal/cli"), 3},
	{"preempt imports no sibling", "internal/preempt/watcher.go", importing(testModule + "/internal/lifecycle"), 3},
	{"notice knows preempt alone", "notice/watcher.go", importing(testModule + "/internal/retry"), 3},
	{"queue imports no sibling", "internal/queue/lease.go", importing(testModule + "/internal/checkpoint"), 3},
	{"queue imports no sibling", "internal/queue/inner/lease.go", importing(testModule), 3},
	{"checkpoint imports no sibling", "internal/checkpoint/store.go", importing(testModule + "/internal/queue"), 3},
	{"program knows the contract only", "internal/program/handler.go", importing(testModule + "/internal/checkpoint"), 3},
	{"trees and folders know no jobs", "internal/program/scratch/scratch.go", importing(testModule + "/internal/program"), 3},
	{"archive stands alone", "internal/program/archive/reader.go", importing(testModule + "/job"), 3},
	{"ledger stands alone", "internal/checkpoint/ledger/lost.go", importing(testModule + "/job"), 3},
	{"joblog imports no sibling", "internal/jobfiles/joblog/store.go", importing(testModule + "/internal/checkpoint"), 3},
	{"outputs imports no sibling", "internal/jobfiles/outputs/set.go", importing(testModule + "/internal/checkpoint"), 3},
	{"output folders know no storage", "internal/program/outfolder/folder.go", importing(testModule + "/internal/jobfiles/outputs"), 3},
	{"presence imports no sibling", "internal/fleet/presence/presence.go", importing(testModule + "/internal/worker"), 3},
	{"control imports no sibling", "internal/fleet/control/store.go", importing(testModule + "/internal/fleet/presence"), 3},
	{"runtimedir knows the metadata budget alone", "internal/fleet/vmshare/dir.go", importing(testModule + "/internal/fleet/presence"), 3},
	{"outage imports no sibling", "internal/storage/outage/watch.go", importing(testModule + "/internal/storage/azure"), 3},
	{"haste imports no sibling", "internal/storage/hedge/policy.go", importing(testModule + "/internal/storage/azure"), 3},
	{"messagelist imports no sibling", "internal/storage/messagelist/policy.go", importing(testModule + "/internal/queue"), 3},
	{"azure imports no sibling", "internal/storage/azure/client.go", importing(testModule + "/internal/preempt"), 3},
	{"drain knows the notice alone", "internal/drain/gate.go", importing(testModule + "/internal/queue"), 3},
	{"events knows neither messages nor jobs", "internal/events/ready.go", importing(testModule + "/internal/queue"), 3},
	{"intake stands alone", "internal/worker/intake/pace.go", importing(testModule + "/internal/queue"), 3},
	{"sources knows queues alone", "internal/worker/sources/sources.go", importing(testModule + "/internal/checkpoint"), 3},
	{"renewal knows messages alone", "internal/delivery/renewal/pace.go", importing(testModule + "/internal/checkpoint"), 3},
	{"ordered, pool and readahead stand alone", "internal/delivery/pool/pool.go", importing(testModule + "/internal/drain"), 3},
	{"listing and upload stand alone", "internal/storage/listing/listing.go", importing(testModule + "/job"), 3},
	{"breaker stands alone", "internal/delivery/breaker/breaker.go", importing(testModule + "/job"), 3},
	{"inputs knows jobs alone", "internal/jobfiles/inputs/fetch.go", importing(testModule + "/internal/queue"), 3},
	{"delivery imports only what it joins", "internal/delivery/settle.go", importing(testModule + "/internal/events"), 3},
	{"waiting finds messages, and leaves jobs to delivery", "internal/worker/waiting/waiting.go",
		importing(testModule + "/internal/checkpoint"), 3},
	{"worker imports only what it joins", "internal/worker/run.go", importing(testModule + "/internal/handlers"), 3},
	{"worker imports only what it joins", "internal/worker/run_windows.go", importing(testModule + "/job/jobtest"), 3},
	{"worker imports only what it joins", "internal/worker/run.go", "//go:build integration\n\n" + importing(testModule+"/internal/fleet"), 5},
	{"producer imports only what it puts", "internal/producer/wait.go", importing(testModule + "/internal/worker"), 3},
	{"vmpackage knows what goes onto a VM", "internal/vmpackage/build.go", importing(testModule + "/internal/lab"), 3},
	{"web shows what others read", "internal/web/page.go", importing(testModule + "/internal/storage/azure"), 3},
	{"actions words what client does", "internal/operate/actions/put.go", importing(testModule + "/internal/operate"), 3},
	{"the engine is used from outside", "internal/handlers/hash.go", importing(testModule + "/internal/worker"), 3},
	{"the engine is used from outside", "examples/render/main.go", importing(testModule + "/internal/worker"), 3},
	{"the replay takes decisions alone", "internal/replay/run.go", importing(testModule + "/internal/worker"), 3},
	{"lanes draws what it is handed", "internal/replay/lanes/picture.go", importing(testModule + "/internal/replay"), 3},
	{"only the outer layer connects", "internal/fleet/list.go", importing(testModule + "/internal/storage/azure"), 3},
	{"only the outer layer has a command line", "internal/queue/flags.go", importing(testModule + "/internal/cli"), 3},
	{"only the outer layer has a command line", "internal/handlers/flags.go", importing(testModule + "/internal/cli"), 3},
	{"the root calls the worker command alone", "spotworker.go", importing(testModule + "/internal/worker"), 3},
	{"the client knows no engine", "client/run.go", importing(testModule + "/internal/worker"), 3},
	{"the worker command is started from outside", "internal/lab/run.go", importing(testModule + "/internal/workercmd"), 3},
	{"credentials come from one place", "cmd/worker/main.go", importing(azidentityPath), 3},
	{"credentials come from one place", "cmd/worker/main_test.go", importing(azidentityPath + "/cache"), 3},
	{"emulators stay in the lab", "cmd/worker/main.go", importing(testModule + "/internal/lab/emulator/storage"), 3},
	{"emulators stay in the lab", "spotworker.go", importing(testModule + "/internal/lab/emulator/imds"), 3},
	{"emulators share no code with what they test", "internal/lab/emulator/imds/server.go", importing(testModule + "/internal/preempt"), 3},
	{"blobs and queues know the protocol alone", "internal/lab/emulator/storage/blobs/service.go",
		importing(testModule + "/internal/lab/emulator/storage"), 3},
	{"the storage protocol keeps no state", "internal/lab/emulator/storage/protocol/reply.go",
		importing(testModule + "/internal/lab/emulator/storage/blobs"), 3},
	{"the lab is used by its command", "cmd/producer/main.go", importing(testModule + "/internal/lab"), 3},
	{"the lab's base knows no command", "internal/lab/fleet.go", importing(testModule + "/internal/lab/demo"), 3},
	{"lab demo knows no other command", "internal/lab/demo/demo.go", importing(testModule + "/internal/lab/chaos"), 3},
	{"lab try knows no other command", "internal/lab/trial/trial.go", importing(testModule + "/internal/lab/oracle"), 3},
	{"lab chaos knows no other command", "internal/lab/chaos/run.go", importing(testModule + "/internal/lab/demo"), 3},
	{"lab replay --real knows no other command", "internal/lab/realtime/run.go", importing(testModule + "/internal/lab/trial"), 3},
	{"lab up and lab imds know no other command", "internal/lab/up/up.go", importing(testModule + "/internal/lab/oracle"), 3},
	{"the oracle stands alone", "internal/lab/oracle/judge.go", importing(testModule + "/internal/checkpoint"), 3},
	{"the worker's tests are used by no program", "internal/lab/fleet.go", importing(testModule + "/internal/test/worker/rig"), 3},
	{"the recorder knows no worker under test", "internal/test/worker/recorder/rules.go", importing(testModule + "/internal/test/worker/rig"),
		3},
	{"test helpers stay in tests", "internal/fleet/list.go", importing("testing"), 3},
	{"test helpers stay in tests", "internal/fleet/list.go", importing(testModule + "/internal/test/guard"), 3},
	{skipRule.name, "internal/queue/text_test.go", "package queue\n\nimport \"testing\"\n\nfunc TestA(t *testing.T) { t.Skipf(\"no\") }\n", 5},
	{skipRule.name, "internal/test/worker/rig/text.go",
		"package rig\n\nimport \"testing\"\n\nfunc (b *Bed) a(testing.TB) { b.t.Skip() }\n", 5},
	{nameRule.name, "internal/queue/util/text.go", "package text\n", 1},
	{nameRule.name, "internal/queue/text.go", "package helpers\n", 1},
	{nameRule.name, "internal/types/text_test.go", "package types_test\n", 1},
	{literalRule.name, "internal/storage/azure/token.go", "package azure\n\nconst host = \"http://169.254.169.254/metadata\"\n", 3},
	{literalRule.name, "cmd/lab/main.go", "package main\n\nvar host = \"169.254.\\x3169.254\" + `\n169.254.169.254`\n", 3},
}

// TestEveryBreachIsFound: each file above breaks its rule, on its line. Some
// break another one as well.
func TestEveryBreachIsFound(t *testing.T) {
	for _, b := range breaches {
		t.Run(b.rule+"/"+b.path, func(t *testing.T) {
			files, err := readModule(tree(b.path, b.text))
			if err != nil {
				t.Fatal(err)
			}
			found := check(files)
			if len(found) == 0 {
				t.Fatalf("check found nothing in\n%s", b.text)
			}
			for _, v := range found {
				if v.rule != b.rule {
					continue
				}
				if v.path != b.path || v.line != b.line {
					t.Errorf("found at %s:%d, want %s:%d", v.path, v.line, b.path, b.line)
				}
				return
			}
			t.Errorf("check found %v, want a breach of %q", found, b.rule)
		})
	}
}

// TestPackageSizes: a package may have so many files, and more for tests and
// platforms.
func TestPackageSizes(t *testing.T) {
	var files []string
	for i := range sizeRule.most {
		files = append(files, fmt.Sprintf("internal/queue/f%d.go", i), "package queue\n", fmt.Sprintf("internal/queue/f%d_test.go", i),
			"package queue\n")
	}
	files = append(files, "internal/queue/f_linux.go", "package queue\n")
	for _, c := range []struct {
		more string
		want int
	}{{"internal/queue/g_other.go", 0}, {"internal/queue/g.go", 1}} {
		read, err := readModule(tree(append(files, c.more, "package queue\n")...))
		if err != nil {
			t.Fatal(err)
		}
		if found := check(read); len(found) != c.want {
			t.Errorf("with %s: found %v, want %d violations", c.more, found, c.want)
		}
	}
}

func TestEveryRuleHasABreach(t *testing.T) {
	broken := map[string]bool{}
	for _, b := range breaches {
		broken[b.rule] = true
	}
	names := []string{nameRule.name, literalRule.name, skipRule.name} // TestPackageSizes breaks sizeRule
	for _, rule := range importRules {
		names = append(names, rule.name)
	}
	for _, name := range names {
		if !broken[name] {
			t.Errorf("no example breaks rule %q", name)
		}
		delete(broken, name)
	}
	for name := range broken {
		t.Errorf("examples break rule %q, which does not exist", name)
	}
}

// TestWhatIsAllowed has the neighbours of the breaches: what looks like one
// and is right.
func TestWhatIsAllowed(t *testing.T) {
	for _, c := range []struct{ path, text string }{
		{"job/jobtest/evict.go", importing(testModule + "/job")},
		{"job/jobtest/evict.go", importing("testing")},
		{"job/job.go", importing("context")},
		{"internal/queue/claim.go", importing("github.com/Azure/azure-sdk-for-go/sdk/storage/azqueue/v2")},
		{"internal/queue/claim.go", importing(testModule + "/internal/jobid")},
		{"internal/queue/claim.go", importing("example.org/module/internal/worker")},
		{"internal/queue/claim_test.go", importing(testModule + "/internal/lab/emulator/storage")},
		{"internal/queuework/claim.go", importing(testModule + "/internal/checkpoint")},
		{"internal/storage/azure/token.go", importing(azidentityPath)},
		{"internal/worker/run.go", importing(testModule + "/internal/queue")},
		{"internal/producer/digests.go", importing(testModule + "/internal/handlers")},
		{"cmd/worker/main.go", importing(testModule + "/internal/worker")},
		{"cmd/worker/main.go", importing(testModule + "/internal/storage/azure")},
		{"spotworker.go", importing(testModule + "/internal/workercmd")},
		{"internal/workercmd/flags.go", importing(testModule + "/internal/worker")},
		{"internal/cli/storage.go", importing(testModule + "/internal/storage/azure")},
		{"cmd/lab/demo/main.go", importing(testModule + "/internal/lab/emulator/storage")},
		{"internal/lab/emulator/conformance/queue.go", importing("testing")},
		{"internal/lab/emulator/imds/server.go", "package imds\n\n// It stands for 169.254.169.254.\nvar host = \"127.0.0.1\"\n"},
		{"internal/preempt/client.go", "package preempt\n\nconst DefaultEndpoint = \"http://169.254.169.254\"\n"},
		{"internal/storage/azure/token_test.go", "package azure\n\nconst host = \"http://169.254.169.254\"\n"},
		{"internal/queue/testdata/util/x.go", "package util\n"},
		{"node_modules/util/x.go", "package util\n"},
		{".tools/util/x.go", "package util\n"},
	} {
		files, err := readModule(tree(c.path, c.text))
		if err != nil {
			t.Fatal(err)
		}
		for _, v := range check(files) {
			t.Errorf("check found, in a file that breaks nothing:\n%s\n%s", c.text, v)
		}
	}
}

func TestNestedModulesAreLeftOut(t *testing.T) {
	files, err := readModule(tree(
		"examples/own/go.mod", "module example.org/own\n",
		"examples/own/util/x.go", "package util\n",
		"examples/main.go", "package main\n",
	))
	if err != nil {
		t.Fatal(err)
	}
	if len(files) != 1 || files[0].dir != "./examples" {
		t.Errorf("readModule = %+v, want ./examples only", files)
	}
}

func TestUnreadableModules(t *testing.T) {
	noLine := tree()
	noLine["go.mod"].Data = []byte("go 1.26\n")
	for name, fsys := range map[string]fstest.MapFS{
		"no go.mod":      {},
		"no module line": noLine,
		"not Go":         tree("job/job.go", "package job\n\nfunc {"),
	} {
		if files, err := readModule(fsys); err == nil {
			t.Errorf("%s: readModule = %d files, want an error", name, len(files))
		}
	}
}

func TestMessageSaysEverything(t *testing.T) {
	files, err := readModule(tree("internal/queue/lease.go", importing(testModule+"/internal/worker")))
	if err != nil {
		t.Fatal(err)
	}
	var messages []string
	for _, v := range check(files) {
		messages = append(messages, v.String())
	}
	all := strings.Join(messages, "\n")
	for _, want := range []string{
		"internal/queue/lease.go:3:",
		"imports ./internal/worker",
		"rule: queue imports no sibling",
		"why:  messages and records are joined in one place",
		"rule: the engine is used from outside",
	} {
		if !strings.Contains(all, want) {
			t.Errorf("messages lack %q:\n%s", want, all)
		}
	}
}
