package screen

import (
	"fmt"
	"strings"

	"charm.land/lipgloss/v2"
)

// Columns of a picture. A terminal that is narrower cuts lines at its edge.
const (
	maxWidth   = 100
	nameWidth  = 10
	stateWidth = 10
	jobWidth   = 27 // at most half of the rest of a narrow terminal
	leastBar   = 3
)

// Styles of a picture; a terminal without colours, or NO_COLOR, drops them.
var (
	headStyle  = lipgloss.NewStyle().Bold(true)
	quietStyle = lipgloss.NewStyle().Faint(true)
	moodStyles = map[Mood]lipgloss.Style{
		Working: lipgloss.NewStyle().Foreground(lipgloss.Green),
		Leaving: lipgloss.NewStyle().Foreground(lipgloss.Yellow).Bold(true),
		Gone:    lipgloss.NewStyle().Foreground(lipgloss.Red),
	}
	savedStyle   = lipgloss.NewStyle().Foreground(lipgloss.Green)
	unsavedStyle = lipgloss.NewStyle().Foreground(lipgloss.Yellow)
)

// Draw draws a scene for a terminal of that size. It leaves out the lines that do
// not fit into its height, and counts them.
func Draw(s Scene, width, height int) string {
	width = min(width, maxWidth)
	lines := []string{"", head(s, width)}
	for _, vm := range s.VMs {
		lines = append(lines, drawVM(vm, width)...)
	}
	// One line is left for the cursor, which stands below the picture.
	if room := max(height-1, len(lines[:2])+1); len(lines) > room {
		more := len(lines) - room + 1
		lines = append(lines[:room-1], quietStyle.Render(fmt.Sprintf(" … and %d lines more; the terminal is too low for them", more)))
	}
	for i, line := range lines {
		lines[i] = lipgloss.NewStyle().MaxWidth(max(width, 1)).Render(line)
	}
	return strings.Join(lines, "\n")
}

func head(s Scene, width int) string {
	left := fmt.Sprintf(" %d of %d jobs done   queue: %d visible, %d hidden   poison: %d", s.Committed, s.Jobs, s.Visible, s.Hidden, s.Poison)
	right := fmt.Sprintf("%.1f s", s.Elapsed.Seconds())
	gap := width - lipgloss.Width(left) - len(right) - 1
	if gap < 1 {
		return headStyle.Render(left)
	}
	return headStyle.Render(left) + strings.Repeat(" ", gap) + quietStyle.Render(right)
}

// drawVM draws a VM: a line for each of its jobs, at least one.
func drawVM(vm VM, width int) []string {
	start := " " + pad(vm.Name, nameWidth) + moodStyles[vm.Mood].Render(pad(vm.State, stateWidth))
	if len(vm.Jobs) == 0 {
		return []string{start + quietStyle.Render(vm.Note)}
	}
	var lines []string
	for _, job := range vm.Jobs {
		lines = append(lines, start+drawJob(job, width-lipgloss.Width(start)))
		start = strings.Repeat(" ", lipgloss.Width(start))
	}
	return lines
}

// drawJob draws a job's name and bar: saved bytes, hashed and unsaved bytes, and the
// rest.
func drawJob(j Job, width int) string {
	const percent = "100%"
	name := max(min(jobWidth, (width-len(percent))/2), 2)
	cells := max(width-name-len(percent)-2, leastBar)
	saved, hashed := cellsOf(j.Saved, j.Size, cells), cellsOf(max(j.Hashed, j.Saved), j.Size, cells)
	return pad(j.Name, name) +
		savedStyle.Render(strings.Repeat("█", saved)) +
		unsavedStyle.Render(strings.Repeat("▓", hashed-saved)) +
		quietStyle.Render(strings.Repeat("░", cells-hashed)) +
		fmt.Sprintf("%*d%%", len(percent), cellsOf(max(j.Hashed, j.Saved), j.Size, 100))
}

// cellsOf converts a part of a whole to cells, rounded down.
func cellsOf(part, whole int64, cells int) int {
	if whole <= 0 {
		return 0
	}
	return int(min(max(part, 0), whole) * int64(cells) / whole)
}

// pad makes a text exactly width columns wide, the last of them a space.
func pad(text string, width int) string {
	if n := lipgloss.Width(text); n < width {
		return text + strings.Repeat(" ", width-n)
	}
	return lipgloss.NewStyle().MaxWidth(width-1).Render(text) + " "
}
