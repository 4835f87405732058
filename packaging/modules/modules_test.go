package modules

import "testing"

func TestIdentify(t *testing.T) {
	const bsd2 = "Redistribution and use in source and binary forms, with or without modification"
	tests := map[string]struct{ text, want string }{
		"apache":  {"Apache License\n   Version 2.0, January 2004", "Apache-2.0"},
		"mit":     {"Permission is hereby granted, free\nof charge, to any person", "MIT"},
		"bsd 2":   {bsd2, "BSD-2-Clause"},
		"bsd 3":   {bsd2 + " ... be used to endorse or promote products", "BSD-3-Clause"},
		"isc":     {"Permission to use, copy, modify, and distribute this software", "ISC"},
		"several": {"Apache License Version 2.0 Permission is hereby granted, free of charge", "Apache-2.0 AND MIT"},
		"unknown": {"All rights reserved.", ""},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			if got := identify(test.text); got != test.want {
				t.Errorf("got %q, want %q", got, test.want)
			}
		})
	}
}

func TestReadRefusesUnknownLicences(t *testing.T) {
	if _, err := read(Module{Path: "a.example/a"}, t.TempDir()); err == nil {
		t.Error("a module without a licence was accepted")
	}
}
