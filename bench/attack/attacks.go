package main

// attacks lists what is tried. One line an attack, by attacker.
func attacks() []Attack {
	return []Attack{}
}
