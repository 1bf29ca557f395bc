package cli

import (
	"maps"
	"strings"

	"github.com/alecthomas/kong"
)

// Texts are help texts that are too long for a tag. A tag refers to a text by its name, as
// in help:"${name}".
type Texts map[string]string

// WithTexts is a struct of flags whose tags refer to texts of its own.
type WithTexts interface{ HelpTexts() Texts }

// texts are the help texts of [Storage], [Format] and [Log].
var texts = Texts{
	"about_output":     "Form of the output: ${enum}. json is one object per line, for scripts.",
	"about_log_format": "Form of the log: ${enum}. auto is text on a terminal and JSON elsewhere.",
	"about_client_id": "Client id of the identity to sign in with: a managed identity of the VM or, with AZURE_FEDERATED_TOKEN_FILE, " +
		"the workload identity of a pod. Without it the developer's own sign-in is used.",
	"about_queue": "Queue of jobs, and with -first, -ondemand and -poison behind it the three beside it. Default: PREFIX-jobs.",
}

// fillTexts puts the texts into the help of commands, arguments and flags. It runs before
// kong replaces variables, so a text may have some.
func fillTexts(flags any) func(*kong.Kong) error {
	all := maps.Clone(texts)
	if f, ok := flags.(WithTexts); ok {
		maps.Copy(all, f.HelpTexts())
	}
	return func(k *kong.Kong) error {
		all.fill(k.Model.Node)
		return nil
	}
}

// fill puts the texts into the help of a command and of the commands below it.
func (t Texts) fill(n *kong.Node) {
	n.Help = t.text(n.Help)
	for _, a := range n.Positional {
		a.Help, a.OrigHelp = t.text(a.Help), t.text(a.OrigHelp)
	}
	for _, f := range n.Flags {
		f.Help, f.OrigHelp = t.text(f.Help), t.text(f.OrigHelp)
	}
	for _, child := range n.Children {
		t.fill(child)
	}
}

// text returns the text that the help of a tag refers to, or the help itself.
func (t Texts) text(help string) string {
	name, isReference := strings.CutPrefix(help, "${")
	if text, ok := t[strings.TrimSuffix(name, "}")]; ok && isReference {
		return text
	}
	return help
}
