// Package workflow compares the workflows of this project with the reference
// implementation of the Serverless Workflow DSL.
package workflow
