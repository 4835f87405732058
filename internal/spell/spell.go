// Package spell guesses which word was meant by one that nobody knows.
package spell

import (
	"fmt"
	"slices"
	"strings"
)

// most is how many words a hint names, and longest how long a word it looks at.
const (
	most    = 24
	longest = 64
)

// Hint proposes the word that was meant by got, and names those that there are.
func Hint(got string, words []string) string {
	if len(words) == 0 {
		return "there are none"
	}
	all := list(words)
	if word := Meant(got, words); word != "" {
		return fmt.Sprintf("did you mean %q? There are: %s", word, all)
	}
	return "there are: " + all
}

// Meant is the word that got is a slip of: about a third of its letters may be
// wrong. It is "" when there is none.
func Meant(got string, words []string) string {
	if len(got) > longest {
		return ""
	}
	best, least := "", len(got)/3+2
	for _, word := range slices.Sorted(slices.Values(words)) {
		if len(word) > longest {
			continue
		}
		if d := distance(strings.ToLower(got), strings.ToLower(word)); d < least {
			best, least = word, d
		}
	}
	return best
}

func list(words []string) string {
	words = slices.Sorted(slices.Values(words))
	all := strings.Join(words[:min(len(words), most)], ", ")
	if len(words) > most {
		all += ", ..."
	}
	return all
}

// distance returns the edit distance of Levenshtein between a and b: how many letters are
// to be inserted, deleted or replaced to make one of the other. It keeps one row of the
// table of Wagner and Fischer.
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
