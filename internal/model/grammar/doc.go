// Package grammar turns JSON schemas into grammars (GBNF), so that a text that a model generates
// within one is always valid.
//
// A grammar may accept less than its schema does: properties come in the schema's order, and
// none beside the declared ones. It never accepts more. What it cannot express, such as patterns
// of strings, is refused with the path of the keyword, as are schemas that nothing satisfies.
package grammar
