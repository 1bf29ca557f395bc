// Package spelling finds the name that a misspelt one was probably meant to be.
package spelling

// nearby is the largest edit distance of a misspelt name.
const nearby = 3

// Nearest returns the known name that is most similar, empty if none is similar: more than
// three bytes differ, or all of a short name.
func Nearest(name string, known []string) string {
	found, least := "", min(nearby+1, len(name))
	for _, other := range known {
		if d := distance(name, other); d < least {
			found, least = other, d
		}
	}
	return found
}

// distance returns the Levenshtein distance of two texts, in bytes.
func distance(a, b string) int {
	row := make([]int, len(b)+1) // distances of a[:i] to each b[:j]
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			replaced := diagonal
			if a[i] != b[j] {
				replaced++
			}
			diagonal = row[j+1]
			row[j+1] = min(replaced, row[j]+1, diagonal+1)
		}
	}
	return row[len(b)]
}
