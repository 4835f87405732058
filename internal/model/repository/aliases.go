package repository

import (
	"fmt"
	"slices"
)

// Overlaps describes the names that a version shares with other models, which have an effect that its
// user may not expect: a name hides an equal alias, and the first model by name has an alias.
func (r *Repository) Overlaps(v *Version) []string {
	var list []string
	for _, m := range r.List() {
		other := m.Current()
		if other.Name == v.Name {
			continue
		}
		if slices.Contains(other.Config.Aliases, v.Name) {
			list = append(list, fmt.Sprintf("%s is an alias of the model %s as well: requests for it go to this model now", v.Name, other.Name))
		}
		for _, alias := range v.Config.Aliases {
			switch {
			case alias == other.Name:
				list = append(list, fmt.Sprintf("the alias %s has no effect: a model has that name", alias))
			case slices.Contains(other.Config.Aliases, alias):
				first, second := min(v.Name, other.Name), max(v.Name, other.Name)
				list = append(list, fmt.Sprintf("%s is an alias of the models %s and %s: requests for it go to %s", alias, first, second, first))
			}
		}
	}
	return list
}
