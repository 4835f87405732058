package cli

import "testing"

// Every list is found by its noun in the singular, and by `list` below either form.
func TestHabits(t *testing.T) {
	root := newRootCommand(&Env{})
	for _, noun := range listCommands {
		want, _, err := root.Find([]string{noun})
		if err != nil {
			t.Fatal(err)
		}
		got, _, err := root.Find([]string{singular(noun)})
		if err != nil || got != want {
			t.Errorf("outboard %s is %v (%v), want outboard %s", singular(noun), got, err, noun)
		}
		list, _, err := root.Find([]string{singular(noun), "list"})
		switch {
		case err != nil || list.Name() != "list":
			t.Errorf("outboard %s list is %v (%v)", singular(noun), list, err)
		case list.Flags().Lookup("output") == nil || !list.Hidden:
			t.Errorf("%s: want -o, and no place in the help", list.CommandPath())
		}
	}
	if topic, _, _ := root.Find([]string{"status", "list"}); topic.Name() != "status" {
		t.Errorf("status is no list, and has %v below it", topic)
	}
}
