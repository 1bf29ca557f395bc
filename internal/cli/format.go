package cli

// Format are the flags for the form of the output. Both mean the same, in all commands.
type Format struct {
	Output string `short:"o" help:"${about_output}" enum:"text,json" default:"text" env:"-"`
	JSON   bool   `name:"json" help:"The same as --output json." env:"-"`
}

// WantsJSON reports whether the output has one JSON object per line, for scripts.
func (f *Format) WantsJSON() bool { return f.JSON || f.Output == "json" }
