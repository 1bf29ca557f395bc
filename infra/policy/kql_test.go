package policy

import (
	"regexp"
	"slices"
	"strings"
)

// What transformations of a collection rule know of the query language:
// https://learn.microsoft.com/azure/azure-monitor/data-collection/data-collection-transformations-kql
var (
	transformOperators = strings.Fields(`extend project print where parse project-away project-rename datatable columnifexists`)

	transformFunctions = strings.Fields(`
		binary_and binary_or binary_not binary_shift_left binary_shift_right binary_xor
		tobool todatetime todouble toreal toguid toint tolong tostring totimespan
		ago datetime_add datetime_diff datetime_part dayofmonth dayofweek dayofyear endofday endofmonth endofweek
		endofyear getmonth getyear hourofday make_datetime make_timespan now startofday startofmonth startofweek
		startofyear weekofyear
		array_concat array_length pack_array pack parse_json parse_xml zip
		abs bin floor ceiling exp exp10 exp2 isfinite isinf isnan log log10 log2 pow round sign
		case iif max_of min_of
		base64_encodestring base64_decodestring countof extract extract_all indexof isempty isnotempty split strcat
		strcat_delim strlen substring tolower toupper hash_sha256
		gettype isnotnull isnull
		parse_cef_dictionary geo_location columnifexists`)

	transformWords = strings.Fields(`== != =~ !~ < > <= >= contains !contains contains_cs !contains_cs has !has has_cs
		!has_cs startswith !startswith startswith_cs !startswith_cs endswith !endswith endswith_cs !endswith_cs matches in !in`)
)

var (
	transformLine = regexp.MustCompile(`(?m)^\s*transformKql: '(.*)'$`)
	called        = regexp.MustCompile(`([A-Za-z_][A-Za-z0-9_]*)\s*\(`)
	textInQuery   = regexp.MustCompile(`"[^"]*"`)
	quotedName    = regexp.MustCompile(`\['[^']*'\]`)
	negation      = regexp.MustCompile(`![a-z]\w*`)
	comparison    = regexp.MustCompile(`[!=<>~]{1,2}|\bhasprefix(?:_cs)?\b|\bhassuffix(?:_cs)?\b|\bhas_(?:any|all)\b|\bin~|\bbetween\b`)
)

// unsupported returns the parts of a transformation that Azure does not know there.
func unsupported(query string) []string {
	query = textInQuery.ReplaceAllString(strings.ReplaceAll(query, `\'`, `'`), `""`)
	query = quotedName.ReplaceAllString(query, "column")
	var wrong []string
	for i, step := range strings.Split(query, "|") {
		operator, _, _ := strings.Cut(strings.TrimSpace(step), " ")
		if i == 0 {
			if operator != "source" {
				wrong = append(wrong, "it begins with "+operator+" and not with source")
			}
			continue
		}
		if !slices.Contains(transformOperators, operator) {
			wrong = append(wrong, "operator "+operator)
		}
	}
	for _, call := range called.FindAllStringSubmatch(query, -1) {
		if !slices.Contains(transformFunctions, call[1]) && !slices.Contains(transformWords, call[1]) {
			wrong = append(wrong, "function "+call[1])
		}
	}
	for _, word := range negation.FindAllString(query, -1) {
		if !slices.Contains(transformWords, word) {
			wrong = append(wrong, "comparison "+word)
		}
	}
	for _, sign := range comparison.FindAllString(negation.ReplaceAllString(query, ""), -1) {
		if sign != "=" && !slices.Contains(transformWords, sign) {
			wrong = append(wrong, "comparison "+sign)
		}
	}
	return wrong
}

// checkTransformations: Azure takes every transformation, and the table has a
// column for each of its results.
func checkTransformations(d deployment, tell report) {
	const name = "modules/monitoring.bicep"
	found := transformLine.FindAllStringSubmatch(d[name].source, -1)
	if len(found) != 1 {
		tell(name, 0, "%d transformations, want 1", len(found))
		return
	}
	query := found[0][1]
	for _, wrong := range unsupported(query) {
		tell(name, 0, "the transformation uses what transformations do not know: %s", wrong)
	}
	checkColumns(d[name], strings.ReplaceAll(query, `\'`, `'`), tell)
}

var columnEntry = regexp.MustCompile(`\{ name: '(\w+)', type: '(\w+)' \}`)

// checkColumns: each list has a column once, a table its time. The table has the
// stream's columns, with the columns that the transformation adds and without the
// columns that it takes away.
func checkColumns(f *file, query string, tell report) {
	_, table, _ := strings.Cut(f.source, "resource table ")
	table, rest, _ := strings.Cut(table, "resource endpoint ")
	_, stream, _ := strings.Cut(rest, "streamDeclarations:")
	stream, _, _ = strings.Cut(stream, "dataSources:")
	shared, _, _ := strings.Cut(f.source, "resource workspace")
	lists := map[string]map[string]bool{}
	for list, text := range map[string]string{"table": shared + table, "stream": shared + stream} {
		lists[list] = map[string]bool{}
		for _, m := range columnEntry.FindAllStringSubmatch(text, -1) {
			if lists[list][m[1]] {
				tell(f.Path, 0, "the %s has the column %s twice", list, m[1])
			}
			lists[list][m[1]] = true
		}
	}
	if !lists["table"]["TimeGenerated"] {
		tell(f.Path, 0, "the table has no TimeGenerated, which every table has")
	}
	given := lists["stream"]
	for _, m := range regexp.MustCompile(`(\w+) = `).FindAllStringSubmatch(query, -1) {
		given[m[1]] = true
	}
	_, away, _ := strings.Cut(query, "project-away ")
	for _, m := range regexp.MustCompile(`\['(\w+)'\]`).FindAllStringSubmatch(away, -1) {
		delete(given, m[1])
	}
	for column := range given {
		if !lists["table"][column] {
			tell(f.Path, 0, "the transformation leaves a column %s that the table does not have", column)
		}
	}
	if !strings.Contains(f.source, "var stream = 'Custom-") {
		tell(f.Path, 0, "the stream's name does not begin with Custom-")
	}
	if strings.Count(f.source, "name: 'SpotworkerLog_CL'\n") != 2 {
		tell(f.Path, 0, "the table and its schema are not both called SpotworkerLog_CL; a custom table ends in _CL")
	}
}
