// Package spell suggests the known word that is closest to a misspelt word.
package spell

import (
	"fmt"
	"slices"
	"strings"
)

const (
	maxListed = 24 // words that a hint lists
	maxLength = 64 // bytes of a word to compare
)

// Hint returns the part of an error message that suggests a correction of got and lists the
// known words.
func Hint(got string, words []string) string {
	if len(words) == 0 {
		return "there are none"
	}
	all := list(words)
	if word := Closest(got, words); word != "" {
		return fmt.Sprintf("did you mean %q? There are: %s", word, all)
	}
	return "there are: " + all
}

// Closest returns the word with the smallest edit distance from got, ignoring case. The
// distance must be at most a third of got's length plus one; otherwise Closest returns "".
func Closest(got string, words []string) string {
	if len(got) > maxLength {
		return ""
	}
	best, bound := "", len(got)/3+2
	for _, word := range slices.Sorted(slices.Values(words)) {
		if len(word) > maxLength {
			continue
		}
		if d := distance(strings.ToLower(got), strings.ToLower(word)); d < bound {
			best, bound = word, d
		}
	}
	return best
}

func list(words []string) string {
	words = slices.Sorted(slices.Values(words))
	all := strings.Join(words[:min(len(words), maxListed)], ", ")
	if len(words) > maxListed {
		all += ", ..."
	}
	return all
}

// distance returns the Levenshtein distance between a and b: the least number of insertions,
// deletions and substitutions of characters that turns a into b. It is the algorithm of Wagner and
// Fischer with one row of the table in memory.
func distance(a, b string) int {
	from, to := []rune(a), []rune(b)
	row := make([]int, len(to)+1)
	for j := range row {
		row[j] = j
	}
	for i := range from {
		diagonal := row[0]
		row[0] = i + 1
		for j := range to {
			above := row[j+1]
			if row[j+1] = diagonal; from[i] != to[j] {
				row[j+1] = 1 + min(diagonal, above, row[j])
			}
			diagonal = above
		}
	}
	return row[len(to)]
}
