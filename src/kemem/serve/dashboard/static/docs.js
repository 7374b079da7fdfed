// The page of the API: Swagger UI over /openapi.json. Nothing is loaded from elsewhere, and a key
// that is entered stays in this page.
SwaggerUIBundle({
  url: "/openapi.json",
  dom_id: "#api",
  deepLinking: true,
  displayRequestDuration: true,
  docExpansion: "list",
  defaultModelsExpandDepth: 0,
  persistAuthorization: false,
  tagsSorter: "none",
  validatorUrl: null,
});
