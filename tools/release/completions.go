package main

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
)

// commandLine has the flags of a program by the words of the command before them, such as
// "poison list". The program's own are under no words.
type commandLine map[string][]string

var (
	commandHeading = regexp.MustCompile(`^\.SS "([a-z]+(?: [a-z]+)*)`)
	flagItem       = regexp.MustCompile(`^\\fB(?:-\w, )?(--[\w-]+)`)
)

// readPage reads the commands and flags of a program's manual page.
func readPage(page []byte) commandLine {
	line, command := commandLine{"": nil}, ""
	for text := range strings.Lines(strings.ReplaceAll(string(page), `\-`, "-")) {
		if m := commandHeading.FindStringSubmatch(text); m != nil {
			command = m[1]
			line[command] = nil
		} else if strings.HasPrefix(text, ".SH ") {
			command = ""
		} else if m := flagItem.FindStringSubmatch(text); m != nil {
			line[command] = append(line[command], m[1])
		}
	}
	return line
}

// next returns the words that may follow a command: commands below it, its flags and the
// program's.
func (l commandLine) next(command string) (words []string) {
	for other := range l {
		rest, below := strings.CutPrefix(other, strings.TrimPrefix(command+" ", " "))
		if word, _, _ := strings.Cut(rest, " "); below && word != "" && !slices.Contains(words, word) {
			words = append(words, word)
		}
	}
	slices.Sort(words)
	words = append(words, l[command]...)
	if command != "" {
		words = append(words, l[""]...)
	}
	return words
}

// commands returns all commands, and the words that several begin with.
func (l commandLine) commands() []string {
	all := map[string]bool{}
	for command := range l {
		words := strings.Fields(command)
		for n := range words {
			all[strings.Join(words[:n+1], " ")] = true
		}
	}
	return slices.Sorted(maps.Keys(all))
}

// cases are the shell's branches that find the command before the cursor, and the words
// that may follow it. Bash and zsh read them.
func (l commandLine) cases() (find, words string) {
	for _, command := range append(l.commands(), "") {
		if command != "" {
			find += fmt.Sprintf("      '%s') command='%s' ;;\n", command, command)
		}
		words += fmt.Sprintf("    '%s') words='%s' ;;\n", command, strings.Join(l.next(command), " "))
	}
	return find, words
}

// bash returns what makes bash complete a program's commands and flags.
func (l commandLine) bash(name string) []byte {
	find, words := l.cases()
	return fmt.Appendf(nil, `_%[1]s() {
  local command= word words
  for word in "${COMP_WORDS[@]:1:COMP_CWORD-1}"; do
    case "${command:+$command }$word" in
%[2]s    esac
  done
  case "$command" in
%[3]s  esac
  COMPREPLY=($(compgen -W "$words" -- "${COMP_WORDS[COMP_CWORD]}"))
}
complete -o bashdefault -o default -F _%[1]s %[1]s
`, name, find, words)
}

// zsh is the same as a function for a folder in zsh's fpath.
func (l commandLine) zsh(name string) []byte {
	find, words := l.cases()
	return fmt.Appendf(nil, `#compdef %[1]s
_%[1]s() {
  local command= word found
  for word in "${words[@]:1:$((CURRENT-2))}"; do
    case "${command:+$command }$word" in
%[2]s    esac
  done
  case "$command" in
%[3]s  esac
  compadd -- ${=found} || _files
}
_%[1]s "$@"
`, name, find, strings.ReplaceAll(words, ") words=", ") found="))
}

// fish is the same for fish.
func (l commandLine) fish(name string) []byte {
	var code strings.Builder
	for _, command := range append([]string{""}, l.commands()...) {
		when := "__fish_use_subcommand"
		if command != "" {
			when = "__fish_seen_subcommand_from " + strings.ReplaceAll(command, " ", "; and __fish_seen_subcommand_from ")
		}
		for _, word := range l.next(command) {
			if flag, ok := strings.CutPrefix(word, "--"); ok {
				fmt.Fprintf(&code, "complete -c %s -n '%s' -l %s\n", name, when, flag)
			} else {
				fmt.Fprintf(&code, "complete -c %s -n '%s' -a %s\n", name, when, word)
			}
		}
	}
	return []byte(code.String())
}
