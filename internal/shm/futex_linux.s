// Go wants a file in assembler beside functions without a body.
