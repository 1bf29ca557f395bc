package architecture

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
)

// violation is one place that breaks one rule.
type violation struct {
	path   string
	line   int
	what   string
	rule   string
	reason string
}

// String returns the facts that the author of the file needs: the place, the fault, the
// rule and its reason.
func (v violation) String() string {
	return fmt.Sprintf("%s:%d: %s\n\trule: %s\n\twhy:  %s", v.path, v.line, v.what, v.rule, v.reason)
}

// check returns everything in files that breaks a rule.
func check(files []source) []violation {
	var found []violation
	for _, f := range files {
		for _, rule := range importRules {
			found = append(found, rule.check(f)...)
		}
		found = append(found, checkName(f)...)
		found = append(found, checkLiterals(f)...)
		found = append(found, checkSkips(f)...)
	}
	return append(found, checkSizes(files)...)
}

// check returns the imports of f that r forbids.
func (r importRule) check(f source) []violation {
	if !matchesAny(r.in, f.dir) || matchesAny(r.notIn, f.dir) || f.test && !r.tests {
		return nil
	}
	var found []violation
	for _, imported := range f.imports {
		if matchesAny(r.forbids, imported.text) && !matchesAny(r.allows, imported.text) {
			found = append(found, violation{f.path, imported.line, "imports " + imported.text, r.name, r.reason})
		}
	}
	return found
}

// platformFile is the name of a file that only one platform, or all but one, builds.
var platformFile = regexp.MustCompile(`_(linux|windows|darwin|unix|other)\.go$`)

// checkSizes reports packages with too many files.
func checkSizes(files []source) (found []violation) {
	counts := map[string]int{}
	for _, f := range files {
		if !f.test && !platformFile.MatchString(f.path) {
			counts[f.dir]++
		}
	}
	for _, dir := range slices.Sorted(maps.Keys(counts)) {
		if n := counts[dir]; n > sizeRule.most {
			found = append(found, violation{dir, 1, fmt.Sprintf("has %d files, at most %d are allowed", n, sizeRule.most), sizeRule.name,
				sizeRule.reason})
		}
	}
	return found
}

// checkName reports a package with a forbidden name, in its clause or in its
// path.
func checkName(f source) []violation {
	for _, name := range append(strings.Split(f.dir, "/"), f.pkg) {
		if slices.Contains(nameRule.forbidden, name) {
			return []violation{{f.path, 1, "package " + f.pkg + " in " + f.dir, nameRule.name, nameRule.reason}}
		}
	}
	return nil
}

// checkLiterals reports string literals that name the metadata service.
func checkLiterals(f source) []violation {
	if f.test || matchesAny(literalRule.notIn, f.dir) {
		return nil
	}
	var found []violation
	for _, lit := range f.literals {
		if strings.Contains(lit.text, literalRule.forbidden) {
			what := "has the literal " + literalRule.forbidden
			found = append(found, violation{f.path, lit.line, what, literalRule.name, literalRule.reason})
		}
	}
	return found
}

// checkSkips reports tests that skip themselves.
func checkSkips(f source) []violation {
	imports := func(path string) bool {
		return slices.ContainsFunc(f.imports, func(m mention) bool { return m.text == path })
	}
	if matchesAny(skipRule.notIn, f.dir) || !imports("testing") || imports(skipRule.unless) {
		return nil
	}
	var found []violation
	for _, call := range f.skips {
		found = append(found, violation{f.path, call.line, "calls " + call.text, skipRule.name, skipRule.reason})
	}
	return found
}
