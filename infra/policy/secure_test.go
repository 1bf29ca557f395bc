package policy

import (
	"maps"
	"path"
	"regexp"
	"slices"
	"strings"
)

// checkSecure follows secure values through variables and modules. The parameters of
// every module are in Azure's history of deployments, unless they are secure themselves:
// an object that contains a password is as secret as the password. Outputs are always in
// that history.
func checkSecure(d deployment, tell report) {
	for _, name := range slices.Sorted(maps.Keys(d)) {
		f := d[name]
		secret := f.secrets()
		if len(secret) == 0 {
			continue
		}
		for _, m := range f.Modules {
			given, _ := at(m.Body, "params").(map[string]any)
			child := d[path.Join(path.Dir(name), m.Path)]
			for param, v := range given {
				if !mentions(v, secret) {
					continue
				}
				if child == nil || !slices.Contains(child.secure(), param) {
					tell(name, m.Line, "parameter %s of module %s contains a secure value and is not @secure(): Azure would keep it "+
						"in the deployment's history", param, m.Symbol)
				}
			}
		}
		for _, o := range f.Outputs {
			if mentions(o.Value, secret) {
				tell(name, o.Line, "output %s contains a secure value", o.Name)
			}
		}
	}
}

// secure returns the names of a file's secure parameters.
func (f *file) secure() (names []string) {
	for _, p := range f.Params {
		if slices.ContainsFunc(p.Decorators, func(d string) bool { return strings.HasPrefix(d, "@secure") }) {
			names = append(names, p.Name)
		}
	}
	return names
}

// secrets returns the names of a file's secure parameters, and of the variables that
// contain one.
func (f *file) secrets() []string {
	names := f.secure()
	for before := -1; before != len(names); {
		before = len(names)
		for _, v := range f.Variables {
			if !slices.Contains(names, v.Name) && mentions(v.Value, names) {
				names = append(names, v.Name)
			}
		}
	}
	return names
}

var (
	quotedText   = regexp.MustCompile(`'(?:[^'\\]|\\.)*'`)
	interpolated = regexp.MustCompile(`\$\{([^}]*)\}`)
	objectKey    = regexp.MustCompile(`(?:^|[{,\n])[ \t]*\w+[ \t]*:`)
	ofLength     = regexp.MustCompile(`\b(?:length|empty)\(\w+\)`)
	identifier   = regexp.MustCompile(`(?:^|[^.\w])([A-Za-z_]\w*)`)
)

// mentions reports whether an expression anywhere in a value uses one of the names. The
// length of a secret is none.
func mentions(v value, names []string) bool {
	switch v := v.(type) {
	case []any:
		return slices.ContainsFunc(v, func(e any) bool { return mentions(e, names) })
	case map[string]any:
		source, ok := v["$expr"].(string)
		if !ok {
			return slices.ContainsFunc(slices.Collect(maps.Values(v)), func(e any) bool { return mentions(e, names) })
		}
		source = objectKey.ReplaceAllString(ofLength.ReplaceAllString(source, ""), " ")
		source = quotedText.ReplaceAllStringFunc(source, func(text string) string {
			var parts []string
			for _, m := range interpolated.FindAllStringSubmatch(text, -1) {
				parts = append(parts, m[1])
			}
			return " " + strings.Join(parts, " ") + " "
		})
		return slices.ContainsFunc(identifier.FindAllStringSubmatch(source, -1), func(m []string) bool { return slices.Contains(names, m[1]) })
	default:
		return false
	}
}
