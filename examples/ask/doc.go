// Package ask tests the example of questions to a language model.
package ask
