package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"time"

	"github.com/outboard-run/outboard/packaging/modules"
)

// The parts of an SPDX 2.3 document that a bill of materials needs (https://spdx.github.io/spdx-spec/v2.3/).
type (
	spdxDocument struct {
		Version       string             `json:"spdxVersion"`
		DataLicense   string             `json:"dataLicense"`
		ID            string             `json:"SPDXID"`
		Name          string             `json:"name"`
		Namespace     string             `json:"documentNamespace"`
		Creation      spdxCreation       `json:"creationInfo"`
		Packages      []spdxPackage      `json:"packages"`
		Relationships []spdxRelationship `json:"relationships"`
	}
	spdxCreation struct {
		Created  string   `json:"created"`
		Creators []string `json:"creators"`
	}
	spdxPackage struct {
		ID            string          `json:"SPDXID"`
		Name          string          `json:"name"`
		Version       string          `json:"versionInfo"`
		Download      string          `json:"downloadLocation"`
		FilesAnalyzed bool            `json:"filesAnalyzed"`
		Concluded     string          `json:"licenseConcluded"`
		Declared      string          `json:"licenseDeclared"`
		Copyright     string          `json:"copyrightText"`
		References    []spdxReference `json:"externalRefs,omitempty"`
	}
	spdxReference struct {
		Category string `json:"referenceCategory"`
		Type     string `json:"referenceType"`
		Locator  string `json:"referenceLocator"`
	}
	spdxRelationship struct {
		From string `json:"spdxElementId"`
		Type string `json:"relationshipType"`
		To   string `json:"relatedSpdxElement"`
	}
)

const noAssertion = "NOASSERTION"

// writeSBOM writes the bill of materials of the program: the modules that are linked into it.
func (r *release) writeSBOM(ctx context.Context) error {
	linked, err := modules.Linked(ctx, "./cmd/outboard", architectures()...)
	if err != nil {
		return err
	}
	text, err := json.MarshalIndent(r.sbom(linked), "", "  ")
	if err != nil {
		return err
	}
	name := fmt.Sprintf("outboard-%s.spdx.json", r.number())
	return os.WriteFile(filepath.Join(r.out, name), append(text, '\n'), 0o644) //nolint:gosec // for everybody to read
}

func (r *release) sbom(linked []modules.Module) spdxDocument {
	const document, program = "SPDXRef-DOCUMENT", "SPDXRef-outboard"
	d := spdxDocument{
		Version: "SPDX-2.3", DataLicense: "CC0-1.0", ID: document, Name: "outboard-" + r.number(),
		Namespace: "https://github.com/outboard-run/outboard/sbom/" + r.number(),
		Creation:  spdxCreation{Created: r.time.Format(time.RFC3339), Creators: []string{"Organization: The Outboard Authors", "Tool: make dist"}},
		Packages: []spdxPackage{{
			ID: program, Name: "outboard", Version: r.number(), Download: "https://github.com/outboard-run/outboard",
			Concluded: "Apache-2.0", Declared: "Apache-2.0", Copyright: "Copyright 2025-2026 The Outboard Authors",
		}},
		Relationships: []spdxRelationship{{document, "DESCRIBES", program}},
	}
	for _, m := range linked {
		p := modulePackage(m)
		d.Packages = append(d.Packages, p)
		d.Relationships = append(d.Relationships, spdxRelationship{program, "DEPENDS_ON", p.ID})
	}
	return d
}

// unfit matches characters that an SPDX identifier may not contain.
var unfit = regexp.MustCompile(`[^A-Za-z0-9.-]+`)

func modulePackage(m modules.Module) spdxPackage {
	locator := "pkg:golang/" + m.Path + "@" + m.Version
	if m.Path == modules.Standard {
		locator = "pkg:golang/stdlib@" + m.Version
	}
	return spdxPackage{
		ID: "SPDXRef-" + unfit.ReplaceAllString(m.Path, "-"), Name: m.Path, Version: m.Version, Download: noAssertion,
		Concluded: noAssertion, Declared: m.Licence, Copyright: noAssertion,
		References: []spdxReference{{"PACKAGE-MANAGER", "purl", locator}},
	}
}
