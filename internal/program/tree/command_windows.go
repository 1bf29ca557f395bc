package tree

import (
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"golang.org/x/sys/windows"
)

// NewCommand returns a command that starts suspended, see [newGroup], in a process group
// of its own. The worker needs a console to send that Ctrl-Break: a service has none, and
// gets an invisible console.
func NewCommand(argv []string, _ Limits) *exec.Cmd {
	_, _, _ = windows.NewLazySystemDLL("kernel32.dll").NewProc("AllocConsole").Call() // fails where there is one

	cmd := exec.Command(argv[0], argv[1:]...) //nolint:gosec,noctx // from the kinds file; supervise ends it
	cmd.SysProcAttr = &syscall.SysProcAttr{CreationFlags: windows.CREATE_NEW_PROCESS_GROUP | windows.CREATE_SUSPENDED}
	if isBatch(argv[0]) {
		// Not left to CreateProcess, which finds cmd.exe by COMSPEC and quotes nothing
		// for it.
		cmd.Path = commandProcessor()
		cmd.SysProcAttr.CmdLine = batchLine(argv)
	}
	return cmd
}

// longestPath is how many characters the path of a program or of its working
// directory may have: CreateProcess takes no longer ones.
const longestPath = 258

// CheckCommand returns an error for a command that Windows cannot start.
func CheckCommand(argv []string) error {
	switch extension := strings.ToLower(filepath.Ext(argv[0])); extension {
	case ".exe", ".com":
	case ".bat", ".cmd":
		if slices.ContainsFunc(argv, func(s string) bool { return strings.ContainsAny(s, "\r\n") }) {
			return errors.New("arguments of a batch file must not have line breaks: cmd ends the command there")
		}
		if strings.Contains(argv[0], "%") {
			return errors.New("the path of a batch file must not have % in it: cmd takes that for a variable")
		}
	default:
		//nolint:staticcheck // Windows is a name
		return fmt.Errorf("Windows does not start %q files; give their interpreter first, such as [\"python\", %q]",
			extension, filepath.Base(argv[0]))
	}
	return CheckPath(argv[0])
}

// CheckPath returns an error for a path that CreateProcess does not take.
func CheckPath(path string) error {
	if n := len(windows.StringToUTF16(path)) - 1; n > longestPath {
		return fmt.Errorf("%s has %d characters, and Windows starts programs from paths of at most %d, and in folders with such paths", path, n,
			longestPath)
	}
	return nil
}

func isBatch(program string) bool {
	extension := strings.ToLower(filepath.Ext(program))
	return extension == ".bat" || extension == ".cmd"
}

// commandProcessor is the path of cmd.exe.
func commandProcessor() string {
	system, err := windows.GetSystemDirectory()
	if err != nil {
		return "cmd.exe"
	}
	return filepath.Join(system, "cmd.exe")
}

// batchLine returns the command line that makes cmd run a batch file with exactly
// these arguments. cmd has rules of its own: it replaces %NAME% in quotes too, and
// & | < > ^ outside of them would start commands. So every argument is in quotes that
// is more than letters and digits; a quote is doubled, and %cd:~,%, which stands for
// nothing, is put after each percent sign. Rust's standard library does the same.
func batchLine(argv []string) string {
	var line strings.Builder
	line.WriteString(`cmd.exe /e:ON /v:OFF /d /c ""` + argv[0] + `"`)
	for _, argument := range argv[1:] {
		line.WriteByte(' ')
		writeBatchArgument(&line, argument)
	}
	line.WriteByte('"')
	return line.String()
}

// plainInBatch are the characters that need no quotes, besides letters and digits.
const plainInBatch = `#$*+-./:?@\_`

func writeBatchArgument(line *strings.Builder, argument string) {
	quoted := argument == "" || strings.HasSuffix(argument, `\`) || strings.ContainsFunc(argument, func(r rune) bool {
		letter := r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9'
		return !letter && !strings.ContainsRune(plainInBatch, r)
	})
	if !quoted {
		line.WriteString(argument)
		return
	}
	line.WriteByte('"')
	backslashes := 0
	for _, r := range argument {
		switch r {
		case '\\':
			backslashes++
		case '"': // doubled, and so are the backslashes before it
			line.WriteString(strings.Repeat(`\`, backslashes) + `"`)
			backslashes = 0
		case '%':
			line.WriteString(`%%cd:~,`)
			backslashes = 0
		default:
			backslashes = 0
		}
		line.WriteRune(r)
	}
	line.WriteString(strings.Repeat(`\`, backslashes) + `"`)
}
