package cli

// Format has the flag for the form of the output, in all commands.
type Format struct {
	Output string `short:"o" help:"${about_output}" enum:"text,json" default:"text" env:"-"`
}

// WantsJSON reports whether the output has one JSON object per line, for scripts.
func (f *Format) WantsJSON() bool { return f.Output == "json" }
