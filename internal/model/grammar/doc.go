// Package grammar converts JSON schemas to grammars (GBNF), so that a text that a model generates
// within a grammar is always valid.
//
// A grammar may accept less than its schema does: properties come in the schema's order, and no
// others than the declared ones. It never accepts more. What it cannot express, such as look-ahead in
// the pattern of a string, is refused with the path of the keyword, as are schemas that no value
// satisfies.
package grammar
