// Package manual writes the manual page of a program, from the same model of its command line
// as --help.
package manual

import (
	"bytes"
	"fmt"
	"io"
	"strings"
	"unicode"

	"github.com/alecthomas/kong"
)

// Command is the command that prints the manual page.
type Command struct {
	parsed *kong.Context
	vars   kong.Vars
}

// Help is shown by man --help.
func (*Command) Help() string {
	return `The page has the form of roff. To read it: NAME man >NAME.1 && man ./NAME.1, with the
program's name for NAME.`
}

// AfterApply is called by kong when all flags are set.
func (c *Command) AfterApply(parsed *kong.Context, vars kong.Vars) error {
	c.parsed, c.vars = parsed, vars
	return nil
}

// Print prints the page to the standard output of the parser.
func (c *Command) Print() error {
	return Write(c.parsed.Stdout, c.parsed.Model, c.vars["version"])
}

// Write writes the manual page of a program as roff. version is its name and version.
func Write(out io.Writer, program *kong.Application, version string) error {
	p := &page{}
	p.title(program, version)
	p.section("DESCRIPTION")
	p.paragraphs(program.Help)
	if commands := program.Leaves(true); len(commands) > 0 {
		p.section("COMMANDS")
		for _, command := range commands {
			p.command(command)
		}
	}
	p.section("FLAGS")
	p.flags(program.Flags)
	p.section("SEE ALSO")
	p.paragraphs("https://github.com/spotworker/spotworker")
	_, err := out.Write(p.text.Bytes())
	return err
}

// page is a manual page that is being written.
type page struct{ text bytes.Buffer }

// title writes name, purpose and synopsis. The purpose is the first sentence of the
// description.
func (p *page) title(program *kong.Application, version string) {
	purpose, _, _ := strings.Cut(strings.Join(strings.Fields(program.Help), " "), ". ")
	p.printf(".TH %s 1 \"\" %s \"spotworker\"\n", quoted(strings.ToUpper(program.Name)), quoted(version))
	p.printf(".ad l\n.nh\n") // long flags leave gaps in lines of equal length
	p.section("NAME")
	p.printf("%s \\- %s\n", escaped(program.Name), escaped(strings.TrimSuffix(purpose, ".")))
	p.section("SYNOPSIS")
	synopsis := strings.ReplaceAll(strings.TrimSpace(program.Summary()), "<command>", "[command]")
	p.printf(".B %s\n%s\n", escaped(program.Name), escaped(synopsis))
}

// section begins a section.
func (p *page) section(name string) { p.printf(".SH %s\n", name) }

// command writes a command with its arguments and its own flags.
func (p *page) command(n *kong.Node) {
	p.printf(".SS %s\n", quoted(n.Summary()))
	p.paragraphs(n.Help)
	p.paragraphs(n.Detail)
	for _, argument := range n.Positional {
		p.item(argument.Summary(), argument)
	}
	for ; n != nil && n.Type == kong.CommandNode; n = n.Parent {
		p.flags(n.Flags)
	}
}

// flags writes flags: first flags without a group, then group by group.
func (p *page) flags(flags []*kong.Flag) {
	var titles []string
	groups := map[string][]*kong.Flag{"": nil}
	for _, flag := range flags {
		title := ""
		if flag.Group != nil {
			title = flag.Group.Title
		}
		if _, known := groups[title]; !known {
			titles = append(titles, title)
		}
		groups[title] = append(groups[title], flag)
	}
	for _, title := range append([]string{""}, titles...) {
		if title != "" {
			p.printf(".SS %s\n", quoted(title))
		}
		for _, flag := range groups[title] {
			if !flag.Hidden {
				p.item(flag.String(), flag.Value)
			}
		}
	}
}

// item writes a flag or an argument with its help.
func (p *page) item(name string, value *kong.Value) {
	p.printf(".TP\n\\fB%s\\fR\n%s\n", escaped(name), escaped(kong.DefaultHelpValueFormatter(value)))
}

// paragraphs writes a text. Empty lines divide its paragraphs.
func (p *page) paragraphs(text string) {
	for paragraph := range strings.SplitSeq(text, "\n\n") {
		if paragraph = strings.Join(strings.Fields(paragraph), " "); paragraph != "" {
			p.printf(".PP\n%s\n", escaped(paragraph))
		}
	}
}

func (p *page) printf(format string, arguments ...any) { fmt.Fprintf(&p.text, format, arguments...) }

// roff has the characters with a meaning in roff. A hyphen would otherwise become another
// character, so that a flag could not be copied.
var roff = strings.NewReplacer(`\`, `\e`, "-", `\-`, "\n", " ")

// escaped returns text as roff. A line that began with a dot or a quote would be a request.
func escaped(text string) string {
	var out strings.Builder
	for _, r := range roff.Replace(text) {
		if r < unicode.MaxASCII {
			out.WriteRune(r)
			continue
		}
		fmt.Fprintf(&out, `\[u%04X]`, r)
	}
	text = out.String()
	if strings.HasPrefix(text, ".") || strings.HasPrefix(text, "'") {
		return `\&` + text
	}
	return text
}

// quoted returns text as one argument of a request.
func quoted(text string) string { return `"` + strings.ReplaceAll(escaped(text), `"`, `\(dq`) + `"` }
